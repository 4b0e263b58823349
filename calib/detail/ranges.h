#pragma once

/// Ranges and counts of tensors, on any device.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/calib/calibrator.h"
#include "fakequant/core/backend/ranges.h"
#include "fakequant/core/format.h"

namespace fq::detail {

/// Returns the largest |x| for each index of the kept axes, on the device of x. `x` is f32 and not empty.
[[nodiscard]] Tensor amax(const Tensor& x, const Axes& kept, std::string_view function);
/// Returns the largest |x| of each block, in the shape by.scale_shape(x.shape()) and the layout of x.
[[nodiscard]] Tensor block_amax(const Tensor& x, const Granularity& by);
/// Throws NumericError that names the quantizer for an infinite or NaN range. On a GPU it is thrown at the
/// next read of a value on the host.
void check_finite(const Tensor& amax, std::string_view function, const std::string& quantizer);
/// Returns fl(max(amax, least) * factor) of each range, f32 on the device of amax.
[[nodiscard]] Tensor used_ranges(const Tensor& amax, float least, float factor);
/// Computes amax = fl(amax + fl(momentum * fl(batch - amax))) in place; both f32, on one device. An infinite
/// or NaN range of the batch changes nothing.
void move_ranges(Tensor& amax, const Tensor& batch, float momentum);
/// Computes amax = max(amax, batch) in place where `growing` is not 0. All f32, on one device.
void grow_ranges(Tensor& amax, const Tensor& batch, const Tensor& growing);
/// Returns the largest magnitude and the smallest element. Waits for a GPU.
[[nodiscard]] ValueRange range(const Tensor& x);
/// Counts every |x| in its bin, except those that the rule drops. Waits for a GPU.
void count(const Tensor& x, const BinRule& rule, std::span<std::int64_t> counts);

// Formats and candidates of the searches for a range.

/// Returns the format of the options. Throws ArgumentError for formats other than integers, (4,3) and (2,1).
[[nodiscard]] Format search_format(const CalibratorOptions& options, std::string_view function);

/// Returns torch.linspace, which counts from both ends to the middle. `count` is 2 or more.
[[nodiscard]] std::vector<float> linspace(float first, float last, int count);

}  // namespace fq::detail
