#pragma once

/// Convolutions as products: windows of an image as the rows of a matrix, and back. Elements are words of 1,
/// 2, 4 or 8 bytes, which are moved and, of `add_windows`, added up.
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
  std::int64_t row;     ///< words of a group, at least K
  bool turned = false;  ///< the weights are those of the convolution whose dX this one is: see `of_gradient`

  /// Rounded up to a multiple of `step`.
  [[nodiscard]] static ColumnShape of(const ConvShape& conv, std::int64_t step = 1, bool turned = false);
  /// Of floats of so many bytes: rows of one group, but of single pixels, are whole 16 bytes.
  [[nodiscard]] static ColumnShape of_floats(const ConvShape& conv, int bytes, bool turned = false);
  /// dX of a convolution of stride 1 is a convolution of dY, by the same weights with their taps turned round
  /// and outputs in the place of inputs: that one, whose weights are not turned round. None of other strides,
  /// and where it is padded by more than windows reach.
  [[nodiscard]] static std::optional<ConvShape> of_gradient(const ConvShape& conv);
  [[nodiscard]] std::int64_t group_channels() const { return conv.c / conv.groups; }
  [[nodiscard]] std::int64_t group_outputs() const { return conv.o / conv.groups; }
  [[nodiscard]] std::int64_t products() const { return conv.kh * conv.kw * group_channels(); }
  /// Words of the columns of one image.
  [[nodiscard]] std::int64_t image() const { return conv.oh * conv.ow * conv.groups * row; }
  /// Whether the columns are x itself.
  [[nodiscard]] bool trivial() const;
  /// Whether packed weights of so many outputs a group are the weights themselves.
  [[nodiscard]] bool packed(std::int64_t outputs) const;
  /// The same of fewer images.
  [[nodiscard]] ColumnShape images(std::int64_t count) const;
};

/// x [n, h, w, c] as columns. With `shifted`, of bytes: u8 codes become those codes less 128, as i8, also the
/// zeros around an image.
void take_windows(const ColumnShape& shape, const void* x, int bytes, bool shifted, void* columns,
                  Device device);

/// dx [n, h, w, c] = what columns of f32, f64 or i32 (`dtype`) have of each pixel, added in the order of
/// taps.
void add_windows(const ColumnShape& shape, const void* columns, DType dtype, void* dx, Device device);

/// Weights [o, c/groups, kh, kw] as [groups, outputs, row], columns ordered as above; outputs of a group are
/// padded with rows of zeros to `outputs`. Of a shape that is turned, weights [c, o/groups, kh, kw].
void pack_weights(const ColumnShape& shape, const void* w, int bytes, std::int64_t outputs, void* packed,
                  Device device);
/// The same transposed: [groups, row, outputs], of padding as above.
void pack_weights_transposed(const ColumnShape& shape, const void* w, int bytes, std::int64_t outputs,
                             void* packed, Device device);
/// [groups, outputs, row] back to [o, c/groups, kh, kw].
void unpack_weights(const ColumnShape& shape, const void* packed, int bytes, void* w, Device device);

}  // namespace fq::cuda
