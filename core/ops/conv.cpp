#include "fakequant/core/ops/conv.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/moves.h"
#include "fakequant/core/ops/detail/conv_geometry.h"
#include "fakequant/core/ops/detail/product.h"

namespace fq::detail {

/// A checked convolution, or its transpose in x. In the transpose, the input has the shape of `shape`'s y and
/// the output the shape of its x.
class Convolution final : public Product {
 public:
  /// `rank` of x and y: 3 for one-dimensional convolutions, whose shape has height 1.
  Convolution(std::string_view operator_name, const ConvShape& shape, bool transposed, int rank,
              Shape weight_shape, Attributes attributes_);

  [[nodiscard]] Tensor input(const Tensor& x) const override;
  [[nodiscard]] Tensor weight(const Tensor& w) const override;
  [[nodiscard]] Tensor output(const Tensor& y) const override;
  [[nodiscard]] Tensor gradient(const Tensor& dy) const override;
  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& w) const override;
  [[nodiscard]] Tensor exact_sums(const Codes& x, const Codes& w, Device device) const override;
  [[nodiscard]] Tensor backward_x(const Tensor& dy, const Tensor& w) const override;
  [[nodiscard]] Tensor backward_w(const Tensor& x, const Tensor& dy) const override;

 private:
  ConvShape shape_;
  bool transposed_;
  int rank_;
  Shape weight_shape_;
};

Convolution::Convolution(std::string_view operator_name, const ConvShape& shape, bool transposed, int rank,
                         Shape weight_shape, Attributes attributes_)
    : shape_(shape), transposed_(transposed), rank_(rank), weight_shape_(std::move(weight_shape)) {
  name = operator_name;
  channels = transposed ? shape.c : shape.o;
  terms = (transposed ? shape.o : shape.c) / shape.groups * shape.kh * shape.kw;
  weight_axis = transposed ? 1 : 0;
  attributes = std::move(attributes_);
}

Tensor Convolution::input(const Tensor& x) const { return lift(x); }
Tensor Convolution::weight(const Tensor& w) const { return lift_weights(w); }
Tensor Convolution::output(const Tensor& y) const { return lower(y, rank_); }
Tensor Convolution::gradient(const Tensor& dy) const { return lift(dy); }

Tensor Convolution::forward(const Tensor& x, const Tensor& w) const {
  return transposed_ ? conv_dx(shape_, x, w) : conv_y(shape_, x, w);
}

Tensor Convolution::exact_sums(const Codes& x, const Codes& w, Device device) const {
  Tensor sums = Tensor::empty(transposed_ ? shape_.x_shape() : shape_.y_shape(), DType::i32, device,
                              Layout::channels_last);
  run(device, &Kernels::exact_conv, shape_, transposed_, x, w, sums);
  return sums;
}

Tensor Convolution::backward_x(const Tensor& dy, const Tensor& w) const {
  // The engine distributes the whole product itself, which is faster than the fixed split of the forward pass
  // (see Sharing). dy may have fewer images than y.
  constexpr auto sharing = Sharing::by_threads;
  ConvShape shape = shape_;
  shape.n = dy.dim(0);
  return lower(transposed_ ? conv_y(shape, dy, w, sharing) : conv_dx(shape, dy, w, sharing), rank_);
}

Tensor Convolution::backward_w(const Tensor& x, const Tensor& dy) const {
  // A transposed convolution swaps the roles of input and output, and so of x and dy in the weight gradient.
  return (transposed_ ? conv_dw(shape_, dy, x) : conv_dw(shape_, x, dy)).reshape(weight_shape_);
}

// Convolutions of volumes as products of images, which work on every device and include exact sums.

/// A checked convolution of [n, c, d, h, w], or its transpose. The transpose also gathers its input: a slab
/// of the output reads the slabs whose taps reach it.
class VolumeConvolution final : public Product {
 public:
  VolumeConvolution(std::string_view operator_name, const VolumeShape& shape, Attributes attributes_);

  [[nodiscard]] Tensor input(const Tensor& x) const override;
  [[nodiscard]] Tensor weight(const Tensor& w) const override;
  [[nodiscard]] Tensor output(const Tensor& y) const override;
  [[nodiscard]] Tensor gradient(const Tensor& dy) const override;
  [[nodiscard]] Tensor forward(const Tensor& x, const Tensor& w) const override;
  [[nodiscard]] Tensor exact_sums(const Codes& x, const Codes& w, Device device) const override;
  [[nodiscard]] Tensor backward_x(const Tensor& dy, const Tensor& w) const override;
  [[nodiscard]] Tensor backward_w(const Tensor& x, const Tensor& dy) const override;

 private:
  VolumeShape shape_;
  Convolution images_;
};

namespace {

/// Returns [a, b, c, ..] as [a, c, b, ..], row-major.
Tensor swapped(const Tensor& x, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t rest) {
  return moved(x.reshape({a, b, c, rest}), PermuteMove{{0, 2, 1, 3}});
}

/// Returns the shape of the image weight, with rows in memory order.
Shape image_weight(const VolumeShape& s) {
  const ConvShape& p = s.plane;
  return s.transposed ? Shape{p.o, p.c / p.groups, p.kh, p.kw} : p.w_shape();
}

Convolution image_convolution(std::string_view name, const VolumeShape& s) {
  return {name, s.plane, s.transposed, 4, image_weight(s), {}};
}

}  // namespace

VolumeConvolution::VolumeConvolution(std::string_view operator_name, const VolumeShape& shape,
                                     Attributes attributes_)
    : shape_(shape), images_(image_convolution(operator_name, shape)) {
  name = operator_name;
  channels = images_.channels;
  terms = images_.terms;
  weight_axis = images_.weight_axis;
  attributes = std::move(attributes_);
}

Tensor VolumeConvolution::input(const Tensor& x) const {
  const Tensor rows = x.to(Layout::row_major);
  const std::int64_t c = rows.dim(1), h = rows.dim(3), w = rows.dim(4);
  // [n, c, d, h, w] -> gather [n, c, slabs * taps, h, w] -> [n * slabs, c * taps, h, w].
  const Tensor taps = moved(rows, TakeMove{2, shape_.from});
  return swapped(taps, shape_.n, c, shape_.slabs, shape_.taps * h * w)
      .reshape({shape_.n * shape_.slabs, c * shape_.taps, h, w})
      .to(Layout::channels_last);
}

Tensor VolumeConvolution::weight(const Tensor& w) const {
  const Tensor rows = w.to(Layout::row_major);
  if (!shape_.transposed) return rows.reshape(image_weight(shape_));
  const Shape& s = shape_.weight;
  // [i, o / groups, taps, kh, kw] -> [i * taps, o / groups, kh, kw]: the transposed plane has i * taps
  // inputs.
  return swapped(rows, s[0], s[1], s[2], s[3] * s[4]).reshape(image_weight(shape_));
}

Tensor VolumeConvolution::output(const Tensor& y) const {
  const std::int64_t h = y.dim(2), w = y.dim(3);
  return swapped(y.to(Layout::row_major), shape_.n, shape_.slabs, channels, h * w)
      .reshape({shape_.n, channels, shape_.slabs, h, w});
}

Tensor VolumeConvolution::gradient(const Tensor& dy) const {
  const std::int64_t h = dy.dim(3), w = dy.dim(4);
  return swapped(dy.to(Layout::row_major), shape_.n, channels, shape_.slabs, h * w)
      .reshape({shape_.n * shape_.slabs, channels, h, w})
      .to(Layout::channels_last);
}

Tensor VolumeConvolution::forward(const Tensor& x, const Tensor& w) const { return images_.forward(x, w); }

Tensor VolumeConvolution::exact_sums(const Codes& x, const Codes& w, Device device) const {
  return images_.exact_sums(x, w, device);
}

Tensor VolumeConvolution::backward_x(const Tensor& dy, const Tensor& w) const {
  const Tensor dx = images_.backward_x(dy, w).to(Layout::row_major);
  const std::int64_t c = dx.dim(1) / shape_.taps, high = dx.dim(2), wide = dx.dim(3);
  const Tensor taps = swapped(dx, shape_.n, shape_.slabs, c, shape_.taps * high * wide)
                          .reshape({shape_.n, c, shape_.slabs * shape_.taps, high, wide});
  // The gather copied slabs that several windows read: their gradients are summed.
  return moved_back(taps, TakeMove{2, shape_.from}, {shape_.n, c, shape_.depth, high, wide});
}

Tensor VolumeConvolution::backward_w(const Tensor& x, const Tensor& dy) const {
  const Tensor dw = images_.backward_w(x, dy);
  const Shape& s = shape_.weight;
  if (!shape_.transposed) return dw.reshape(s);
  return swapped(dw, s[0], s[2], s[1], s[3] * s[4]).reshape(s);
}

}  // namespace fq::detail

namespace fq::ops {
namespace {

/// Pads x with an operator, and clears the padding options, unless the padding is zeros and equal on both
/// sides.
Variable padded(const Variable& x, ConvOptions& o) {
  if (o.padding_mode == PadMode::constant && o.padding == o.padding_end) return x;
  std::vector<std::array<std::int64_t, 2>> sizes;
  for (std::size_t i = 0; i < o.padding.size(); ++i) sizes.push_back({o.padding[i], o.padding_end[i]});
  std::ranges::fill(o.padding, 0);
  return pad(x, sizes, o.padding_mode);
}

Variable conv(std::string_view name, const Variable& input, const Variable& w, const Variable& bias,
              const ConvOptions& given, int axes) {
  ConvOptions options = detail::full_options(given, axes, name);
  const Variable x = padded(input, options);
  Attributes attributes = recorder() != nullptr ? detail::conv_attributes(options) : Attributes{};
  if (axes == 3) {
    const auto shape = detail::conv_shape_of_volumes(x.shape(), w.shape(), options, name);
    return detail::apply(std::make_shared<detail::VolumeConvolution>(name, shape, std::move(attributes)), x,
                         w, bias);
  }
  const auto shape = detail::conv_shape(x.shape(), w.shape(), options, name);
  return detail::apply(
      std::make_shared<detail::Convolution>(name, shape, false, axes + 2, w.shape(), std::move(attributes)),
      x, w, bias);
}

}  // namespace

Variable conv3d(const Variable& x, const Variable& w, const Variable& bias, const ConvOptions& options) {
  return conv("conv3d", x, w, bias, options, 3);
}

Variable conv2d(const Variable& x, const Variable& w, const Variable& bias, const ConvOptions& options) {
  return conv("conv2d", x, w, bias, options, 2);
}

Variable conv1d(const Variable& x, const Variable& w, const Variable& bias, const ConvOptions& options) {
  return conv("conv1d", x, w, bias, options, 1);
}

namespace {

using Numbers = std::vector<std::int64_t>;

Variable conv_transpose(std::string_view name, const Variable& x, const Variable& w, const Variable& bias,
                        const ConvOptions& given, const Numbers& output_padding, int axes) {
  const ConvOptions options = detail::full_options(given, axes, name);
  FQ_CHECK(options.padding_mode == PadMode::constant && options.padding == options.padding_end, name,
           "its padding is cut off equally on both sides: omit padding_mode and padding_end");
  const auto extra = detail::full_output_padding(output_padding, axes, name);
  Attributes attributes;
  if (recorder() != nullptr) {
    attributes = detail::conv_attributes(options);
    attributes.emplace_back("output_padding", extra);
  }
  if (axes == 3) {
    const auto shape = detail::conv_transpose_shape_of_volumes(x.shape(), w.shape(), options, extra, name);
    return detail::apply(std::make_shared<detail::VolumeConvolution>(name, shape, std::move(attributes)), x,
                         w, bias);
  }
  const auto shape = detail::conv_transpose_shape(x.shape(), w.shape(), options, extra, name);
  return detail::apply(
      std::make_shared<detail::Convolution>(name, shape, true, axes + 2, w.shape(), std::move(attributes)), x,
      w, bias);
}

}  // namespace

Variable conv_transpose1d(const Variable& x, const Variable& w, const Variable& bias,
                          const ConvOptions& options, const Numbers& output_padding) {
  return conv_transpose("conv_transpose1d", x, w, bias, options, output_padding, 1);
}

Variable conv_transpose2d(const Variable& x, const Variable& w, const Variable& bias,
                          const ConvOptions& options, const Numbers& output_padding) {
  return conv_transpose("conv_transpose2d", x, w, bias, options, output_padding, 2);
}

Variable conv_transpose3d(const Variable& x, const Variable& w, const Variable& bias,
                          const ConvOptions& options, const Numbers& output_padding) {
  return conv_transpose("conv_transpose3d", x, w, bias, options, output_padding, 3);
}

}  // namespace fq::ops
