#pragma once

/// Checks and messages for readers of a Grid, and the order of its numbers.

#include <string>
#include <string_view>

#include "fakequant/core/quantized.h"

namespace fq::detail {

/// Throws ArgumentError unless the scales lie where `x` does; anywhere for an `x` on meta.
void check_device(const Grid& grid, const Tensor& x, std::string_view function);
/// Whether kernels of blocks read the codes of that grid. Integers and E4M3 per tensor or along one axis have
/// kernels of their own. Throws ArgumentError unless the grid has one scale for each block of the shape.
[[nodiscard]] bool in_blocks(const Grid& grid, const Shape& shape, std::string_view function);
/// The numbers of the blocks of a tensor of that shape and layout, in the order of the blocks in its memory
/// (BlockMap). One number for all stays as it is.
[[nodiscard]] Tensor numbers_in_memory(const Tensor& numbers, const Granularity& by, const Shape& shape,
                                       Layout layout);
/// The channel axis of per-axis codes of that shape, -1 per tensor. Throws ArgumentError for block
/// granularities.
[[nodiscard]] int channel_axis(const Grid& grid, const Shape& shape, std::string_view function);
/// Throws ArgumentError for a range that is negative, infinite or NaN.
void check_amax(float amax, const std::string& name);
/// The same of several, where no value can be told.
[[nodiscard]] std::string ranges_message(const Grid& grid);
[[nodiscard]] std::string nan_message(const Grid& grid);
/// Of the bias beside that weight.
[[nodiscard]] std::string bias_nan_message(const Grid& weight);

}  // namespace fq::detail
