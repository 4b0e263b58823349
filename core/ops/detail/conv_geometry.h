#pragma once

/// Checked sizes of convolutions, 1-D ones seen as 2-D of height 1, and volumes as images of their slabs.

#include <string_view>

#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/ops/conv.h"
#include "fakequant/core/tape.h"

namespace fq::detail {

/// Options with one number an axis each.
[[nodiscard]] ops::ConvOptions full_options(const ops::ConvOptions& options, int axes,
                                            std::string_view function);
[[nodiscard]] std::vector<std::int64_t> full_output_padding(const std::vector<std::int64_t>& given, int axes,
                                                            std::string_view function);
[[nodiscard]] Attributes attributes_of(const ops::ConvOptions& options);

/// Of y = conv(x, w); shapes of rank 3 or 4, all options full. Throws ArgumentError for what does not fit.
[[nodiscard]] ConvShape conv_shape(const Shape& x, const Shape& w, const ops::ConvOptions& options,
                                   std::string_view function);
/// Of the convolution whose transpose takes x [n, i, h, w] with w [i, o/groups, kh, kw]: its y is this x.
[[nodiscard]] ConvShape conv_transpose_shape(const Shape& x, const Shape& w, const ops::ConvOptions& options,
                                             const std::vector<std::int64_t>& output_padding,
                                             std::string_view function);

/// A convolution of volumes as one of images. Each slab of the output is an image; its channels are those of
/// the `taps` slabs that it reads, for each channel of the volume one after another.
struct VolumeShape {
  ConvShape plane;  ///< of n * slabs images whose read channels are taps times as many
  std::int64_t n, depth, slabs, taps;
  std::vector<std::int64_t> from;  ///< slab of the input at slab * taps + tap; negative for zeros
  Shape weight;                    ///< [o, c/groups, taps, kh, kw], transposed [i, o/groups, taps, kh, kw]
  bool transposed;
};
[[nodiscard]] VolumeShape conv_shape_of_volumes(const Shape& x, const Shape& w,
                                                const ops::ConvOptions& options, std::string_view function);
[[nodiscard]] VolumeShape conv_transpose_shape_of_volumes(const Shape& x, const Shape& w,
                                                          const ops::ConvOptions& options,
                                                          const std::vector<std::int64_t>& output_padding,
                                                          std::string_view function);

/// [n, c, l] as [n, c, 1, l]; rank 4 stays. `lift` gives channels_last, `lower` undoes it for rank 3.
[[nodiscard]] Shape lifted(const Shape& shape);
[[nodiscard]] Tensor lift(const Tensor& x);
[[nodiscard]] Tensor lower(const Tensor& x, int rank);
/// Weights of rank 3 or 4 as rank 4, row-major.
[[nodiscard]] Tensor lift_weights(const Tensor& w);

}  // namespace fq::detail
