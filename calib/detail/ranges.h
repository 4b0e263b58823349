#pragma once

/// Ranges and counts of tensors of any device.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/calib/calibrator.h"
#include "fakequant/core/backend/ranges.h"
#include "fakequant/core/format.h"

namespace fq::detail {

/// The largest |x| for each index of the kept axes, on the device of x. `x` f32, not empty, any layout.
[[nodiscard]] Tensor amax(const Tensor& x, const Axes& kept, std::string_view function);
/// The largest |x| of each block, of by.scale_shape(x.shape()), in the layout of x. `x` as above.
[[nodiscard]] Tensor block_amax(const Tensor& x, const Granularity& by);
/// Reports a range that is infinite or NaN as a NumericError naming the quantizer: on a GPU when something is
/// next read back.
void check_finite(const Tensor& amax, std::string_view function, const std::string& quantizer);
/// fl(max(amax, least) * factor) each, on the device of amax; f32.
[[nodiscard]] Tensor used_ranges(const Tensor& amax, float least, float factor);
/// amax = fl(amax + fl(momentum * fl(batch - amax))) each, in place; both f32, on one device. A range of the
/// batch that is infinite or NaN moves nothing.
void move_ranges(Tensor& amax, const Tensor& batch, float momentum);
/// amax = max(amax, batch) where `growing` is not 0, in place. All f32, on one device.
void grow_ranges(Tensor& amax, const Tensor& batch, const Tensor& growing);
/// The largest magnitude and the smallest element; on a GPU it waits for them.
[[nodiscard]] ValueRange range(const Tensor& x);
/// Adds every |x| that the rule does not drop to its bin; on a GPU it waits for the counts.
void count(const Tensor& x, const BinRule& rule, std::span<std::int64_t> counts);

// Formats and candidates of the searches for a range.

/// The codes of the options. Throws ArgumentError for formats other than integers, (4,3) and (2,1).
[[nodiscard]] Format search_format(const CalibratorOptions& options, std::string_view function);

/// torch.linspace: from both ends to the middle. `count` 2 or more.
[[nodiscard]] std::vector<float> linspace(float first, float last, int count);

}  // namespace fq::detail
