#pragma once

/// The kernels of this room that every device has, each signature once (core/backend/kernels.h has those of
/// core, and `run`). What a kernel computes, and of which shapes and types, its header in cpu/ says; the
/// table of CUDA has the same bits, and takes ranges and bounds of the host too.

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/format.h"
#include "fakequant/core/tensor.h"
#include "fakequant/reference/detail/block_scales.h"
#include "fakequant/reference/kernels/cpu/fake_quant_kernels.h"

namespace fq::detail {

struct ReferenceKernels {
  // ranges that broadcast
  void (*fake_quant_integer)(const Tensor& x, const Tensor& amax, const Tensor& bound,
                             const IntFormat& format, Tensor& y, Tensor* mask);
  void (*integer_codes)(const Tensor& x, const Tensor& amax, const IntFormat& format, Tensor& codes);
  void (*fake_quant_e4m3)(const Tensor& x, const Tensor& amax, const Tensor& bound, Tensor& y, Tensor* mask);
  void (*round_to_integers)(const Tensor& x, float lower, float upper, Tensor& y, Tensor* mask);
  float (*smallest)(const Tensor& x);

  // blocks
  void (*fake_quant_fp4)(const Tensor& x, const Tensor& scales, const Tensor& bounds, Tensor& y,
                         Tensor* mask);
  void (*fake_quant_blocks)(const Tensor& x, std::int64_t block, const cpu::ElementGrid& grid,
                            const BlockScales& scales, float bound, Tensor& y, Tensor* mask);
  void (*fake_quant_nvfp4)(const Tensor& x, float global, float bound, Tensor& y, Tensor* mask);
  void (*fake_quant_rows)(const Tensor& x, std::int64_t block, const cpu::ElementGrid& grid, bool half_away,
                          const BlockScales& scales, Tensor& y);
  void (*fake_quant_nvfp4_rows)(const Tensor& x, float global, Tensor& y);

  // bounds
  void (*mask_within)(const Tensor& x, const Tensor& amax, Tensor& mask);
  void (*mask_between)(const Tensor& x, const Tensor& lower, const Tensor& upper, Tensor& mask);
  void (*clip)(const Tensor& x, const Tensor& lower, const Tensor& upper, Tensor& y);
  void (*sum_beyond)(const Tensor& x, const Tensor& dy, const Tensor& bound, bool above, Tensor& sums);

  /// That of the device. Throws BackendError for CUDA in builds without it.
  [[nodiscard]] static const ReferenceKernels& of(Device device);
};

}  // namespace fq::detail

namespace fq::cpu {
extern const fq::detail::ReferenceKernels reference_table;
}
namespace fq::cuda {
extern const fq::detail::ReferenceKernels* const reference_table;  ///< null without CUDA (no_cuda.cpp)
}
