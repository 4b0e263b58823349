#pragma once

/// What calibration and counting ask of a device: ranges, counts and answers, each signature once (kernels.h
/// has the other kernels). What a kernel computes its header in cpu/ranges/ says.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/core/backend/cpu/ranges/count_kernels.h"
#include "fakequant/core/backend/cpu/ranges/ranges.h"
#include "fakequant/core/backend/cpu/ranges/rows.h"
#include "fakequant/core/format.h"

namespace fq::detail {

struct RangeKernels {
  Tensor (*amax)(const Tensor& x, const Axes& kept, std::string_view function);
  void (*block_amax)(const Tensor& x, const Granularity& by, Tensor& out);
  cpu::Range (*range)(const Tensor& x);
  void (*check_finite)(const Tensor& amax, const std::string& nan, const std::string& infinity);
  void (*use_ranges)(const Tensor& amax, float least, float factor, Tensor& out);
  void (*move_ranges)(Tensor& amax, const Tensor& batch, float momentum);
  void (*grow_ranges)(Tensor& amax, const Tensor& batch, const Tensor& growing);
  void (*count)(const Tensor& x, const cpu::BinRule& rule, std::span<std::int64_t> counts);
  void (*add_magnitudes)(const cpu::Rows& rows, bool skip_zeros, std::vector<double>& sums);
  void (*add_values)(const cpu::Rows& rows, std::vector<double>& sums);
  void (*add_errors)(const cpu::Rows& rows, const Tensor& amax, const std::vector<float>& multiples,
                     const Format& format, std::vector<double>& sums);
  void (*sweep_ranges)(const cpu::Rows& rows, const std::vector<float>& ranges, float largest,
                       const Format& format, Tensor& amax);
  void (*answers)(const Tensor& scores, Tensor& out);

  /// That of the device. Throws BackendError for CUDA in builds without it.
  [[nodiscard]] static const RangeKernels& of(Device device);
};

}  // namespace fq::detail
