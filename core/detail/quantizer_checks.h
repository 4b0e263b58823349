#pragma once

/// Checks and messages for functions that read a Grid, and the order of its scales.

#include <string>
#include <string_view>

#include "fakequant/core/quantized.h"

namespace fq::detail {

/// Throws ArgumentError unless the scales are on the device of `x`. Any device is allowed if `x` is on meta.
void check_device(const Grid& grid, const Tensor& x, std::string_view function);
/// Whether the grid needs the block kernels. Integers and E4M3 per tensor or along one axis have separate
/// kernels. Throws ArgumentError unless the grid has one scale per block of the shape.
[[nodiscard]] bool needs_block_kernels(const Grid& grid, const Shape& shape, std::string_view function);
/// Returns one number per block, reordered to the block order in memory (BlockMap) of a tensor with this
/// shape and layout. A single number is returned unchanged.
[[nodiscard]] Tensor numbers_in_memory(const Tensor& numbers, const Granularity& by, const Shape& shape,
                                       Layout layout);
/// Returns the channel axis of per-axis codes, or -1 per tensor. Throws ArgumentError for block
/// granularities.
[[nodiscard]] int channel_axis(const Grid& grid, const Shape& shape, std::string_view function);
/// Throws ArgumentError for a range that is negative, infinite or NaN.
void check_amax(float amax, const std::string& name);
/// Returns the message for several ranges, if the wrong value is unknown.
[[nodiscard]] std::string ranges_message(const Grid& grid);
[[nodiscard]] std::string nan_message(const Grid& grid);
/// Returns the message for a NaN in the bias of the layer with this weight.
[[nodiscard]] std::string bias_nan_message(const Grid& weight);

}  // namespace fq::detail
