#pragma once

/// Pixels of channels_last images as items of a launch.

#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/reduction_shape.h"
#include "fakequant/core/backend/cuda/loops/row_shapes.h"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"

namespace fq::cuda {

using fq::detail::PoolSizes;

/// Some channels of one pixel, for images of `rows` * `columns` pixels.
struct PixelPart {
  std::int64_t image, row, column, channel;
  int count;

  FQ_HD PixelPart(const RowGroups& groups, std::int64_t rows, std::int64_t columns, std::int64_t item) {
    const auto part = groups.part(item);
    const std::int64_t line = quotient(part.row, columns);
    column = part.row - line * columns;
    image = quotient(line, rows);
    row = line - image * rows;
    channel = part.column;
    count = part.count;
  }
};

/// Returns the offset of channel 0 of pixel (row, column) of an image.
FQ_HD std::int64_t pixel_offset(std::int64_t image, std::int64_t rows, std::int64_t columns, std::int64_t row,
                                std::int64_t column, std::int64_t channels) {
  return ((image * rows + row) * columns + column) * channels;
}

/// Returns eight channels per item, or one if there are few items, for example in global pooling.
inline RowGroups channel_groups(std::int64_t pixels, std::int64_t channels) {
  constexpr std::int64_t enough = 1 << 16;
  return RowGroups(channels, pixels * channels < group_size * enough ? 1 : group_size);
}

}  // namespace fq::cuda
