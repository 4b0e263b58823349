#pragma once

/// Checked sizes of convolutions. 1-D convolutions become 2-D with height 1, and volumes become images of
/// their slabs.

#include <string_view>

#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/ops/conv.h"
#include "fakequant/core/tape.h"

namespace fq::detail {

/// Expands the options to one number per axis.
[[nodiscard]] ops::ConvOptions full_options(const ops::ConvOptions& options, int axes,
                                            std::string_view function);
[[nodiscard]] std::vector<std::int64_t> full_output_padding(const std::vector<std::int64_t>& given, int axes,
                                                            std::string_view function);
[[nodiscard]] Attributes conv_attributes(const ops::ConvOptions& options);

/// Returns the shape of y = conv(x, w), for shapes of rank 3 or 4 and expanded options. Throws ArgumentError
/// if sizes do not fit.
[[nodiscard]] ConvShape conv_shape(const Shape& x, const Shape& w, const ops::ConvOptions& options,
                                   std::string_view function);
/// Returns the shape of the convolution whose transpose maps x [n, i, h, w] with w [i, o/groups, kh, kw]: its
/// output y has the shape of this x.
[[nodiscard]] ConvShape conv_transpose_shape(const Shape& x, const Shape& w, const ops::ConvOptions& options,
                                             const std::vector<std::int64_t>& output_padding,
                                             std::string_view function);

/// A convolution of volumes as a convolution of images. Each output slab is one image. Its channels are the
/// `taps` input slabs that it reads, grouped by channel of the volume.
struct VolumeShape {
  ConvShape plane;  ///< shape of n * slabs images with taps times as many input channels
  std::int64_t n, depth, slabs, taps;
  std::vector<std::int64_t> from;  ///< input slab at slab * taps + tap; negative for zeros
  Shape weight;                    ///< [o, c/groups, taps, kh, kw]; transposed: [i, o/groups, taps, kh, kw]
  bool transposed;
};
[[nodiscard]] VolumeShape conv_shape_of_volumes(const Shape& x, const Shape& w,
                                                const ops::ConvOptions& options, std::string_view function);
[[nodiscard]] VolumeShape conv_transpose_shape_of_volumes(const Shape& x, const Shape& w,
                                                          const ops::ConvOptions& options,
                                                          const std::vector<std::int64_t>& output_padding,
                                                          std::string_view function);

/// Returns [n, c, l] as [n, c, 1, l]; rank 4 is unchanged. `lift` gives channels_last, `lower` undoes it for
/// rank 3.
[[nodiscard]] Shape lifted(const Shape& shape);
[[nodiscard]] Tensor lift(const Tensor& x);
[[nodiscard]] Tensor lower(const Tensor& x, int rank);
/// Returns weights of rank 3 or 4 as rank 4, row-major.
[[nodiscard]] Tensor lift_weights(const Tensor& w);

}  // namespace fq::detail
