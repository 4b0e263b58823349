#pragma once

/// Convolutions as matrix products: windows of an image become the rows of a matrix, and back. Elements are
/// words of 1, 2, 4 or 8 bytes, which are moved and, in `add_windows`, added.
///
/// Columns are ordered (group, tap, channel), taps (ky, kx): [pixels of y, groups, K], K = kh * kw *
/// c/groups, each group padded with zeros to `row` words.

#include <cstdint>
#include <optional>

#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/device.h"

namespace fq::cuda {

using fq::detail::ConvShape;

struct ColumnShape {
  ConvShape conv;
  std::int64_t row;  ///< words per group, at least K
  /// Whether the weights belong to the convolution whose dX this one computes, see `gradient_conv`.
  bool computes_dx = false;

  /// Rounds the row up to a multiple of `step`.
  [[nodiscard]] static ColumnShape of(const ConvShape& conv, std::int64_t step = 1, bool computes_dx = false);
  /// Returns the shape for floats of `bytes` bytes. With one group, rows are multiples of 16 bytes, except
  /// for single pixels.
  [[nodiscard]] static ColumnShape float_shape(const ConvShape& conv, int bytes, bool computes_dx = false);
  /// Returns dX of a convolution of stride 1 as a convolution of dY. It uses the same weights with reversed
  /// taps and with inputs and outputs exchanged, which `computes_dx` does. Returns nullopt for other strides,
  /// and for padding larger than the windows reach.
  [[nodiscard]] static std::optional<ConvShape> gradient_conv(const ConvShape& conv);
  [[nodiscard]] std::int64_t group_channels() const { return conv.c / conv.groups; }
  [[nodiscard]] std::int64_t group_outputs() const { return conv.o / conv.groups; }
  [[nodiscard]] std::int64_t products() const { return conv.kh * conv.kw * group_channels(); }
  /// Returns the number of words in the columns of one image.
  [[nodiscard]] std::int64_t image() const { return conv.oh * conv.ow * conv.groups * row; }
  /// Returns whether the columns are x itself.
  [[nodiscard]] bool trivial() const;
  /// Returns whether packed weights with `outputs` outputs per group are the weights themselves.
  [[nodiscard]] bool packed(std::int64_t outputs) const;
  /// Returns the shape with `count` images.
  [[nodiscard]] ColumnShape images(std::int64_t count) const;
};

/// Writes x [n, h, w, c] as columns. With `shifted`, for bytes, subtracts 128 from u8 codes and stores them
/// as i8, including the zeros of the padding.
void take_windows(const ColumnShape& shape, const void* x, int bytes, bool shifted, void* columns,
                  Device device);

/// Computes dx [n, h, w, c]: the sum of the columns of each pixel, added in the order of taps. Columns are
/// f32, f64 or i32 (`dtype`).
void add_windows(const ColumnShape& shape, const void* columns, DType dtype, void* dx, Device device);

/// Packs weights [o, c/groups, kh, kw] to [groups, outputs, row], with columns ordered as above. The outputs
/// of a group are padded with zero rows to `outputs`. For a shape with `computes_dx`, the weights are [c,
/// o/groups, kh, kw].
void pack_weights(const ColumnShape& shape, const void* w, int bytes, std::int64_t outputs, void* packed,
                  Device device);
/// Packs the weights transposed: [groups, row, outputs], with the same padding.
void pack_weights_transposed(const ColumnShape& shape, const void* w, int bytes, std::int64_t outputs,
                             void* packed, Device device);
/// Unpacks [groups, outputs, row] to [o, c/groups, kh, kw].
void unpack_weights(const ColumnShape& shape, const void* packed, int bytes, void* w, Device device);

}  // namespace fq::cuda
