#pragma once

/// What sums over ranks ask of a device, each signature once (kernels.h has the other kernels).

#include <span>

#include "fakequant/core/backend/kernels.h"

namespace fq::detail {

struct RankKernels {
  /// Each element of `sums` (i64) becomes the sum of those of the terms, f32, in units of 2^-shift
  /// (numerics/detail/fixed_point.h); 0 of no terms.
  void (*add_fixed)(std::span<const Tensor> terms, int shift, Tensor& sums);
  /// The sums as f32.
  void (*from_fixed)(const Tensor& sums, int shift, Tensor& out);

  /// That of the device. Throws BackendError for CUDA in builds without it.
  [[nodiscard]] static const RankKernels& of(Device device);
};

}  // namespace fq::detail
