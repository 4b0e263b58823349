#include "fakequant/core/ops/detail/volume_convolution.h"

#include "fakequant/core/detail/moves.h"

namespace fq::detail {
namespace {

/// [a, b, c, ..] as [a, c, b, ..], row-major.
Tensor swapped(const Tensor& x, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t rest) {
  return moved(x.reshape({a, b, c, rest}), PermuteMove{{0, 2, 1, 3}});
}

/// The weight of the images, rows as they lie in memory.
Shape image_weight(const VolumeShape& s) {
  const ConvShape& p = s.plane;
  return s.transposed ? Shape{p.o, p.c / p.groups, p.kh, p.kw} : p.w_shape();
}

Convolution images_of(std::string_view name, const VolumeShape& s) {
  return {name, s.plane, s.transposed, 4, image_weight(s), {}};
}

}  // namespace

VolumeConvolution::VolumeConvolution(std::string_view operator_name, const VolumeShape& shape,
                                     Attributes attributes_)
    : shape_(shape), images_(images_of(operator_name, shape)) {
  name = operator_name;
  channels = images_.channels;
  terms = images_.terms;
  weight_axis = images_.weight_axis;
  attributes = std::move(attributes_);
}

Tensor VolumeConvolution::input(const Tensor& x) const {
  const Tensor rows = x.to(Layout::row_major);
  const std::int64_t c = rows.dim(1), h = rows.dim(3), w = rows.dim(4);
  const Tensor taps = moved(rows, TakeMove{2, shape_.from});
  return swapped(taps, shape_.n, c, shape_.slabs, shape_.taps * h * w)
      .reshape({shape_.n * shape_.slabs, c * shape_.taps, h, w})
      .to(Layout::channels_last);
}

Tensor VolumeConvolution::weight(const Tensor& w) const {
  const Tensor rows = w.to(Layout::row_major);
  if (!shape_.transposed) return rows.reshape(image_weight(shape_));
  const Shape& s = shape_.weight;
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
  return moved_back(taps, TakeMove{2, shape_.from}, {shape_.n, c, shape_.depth, high, wide});
}

Tensor VolumeConvolution::backward_w(const Tensor& x, const Tensor& dy) const {
  const Tensor dw = images_.backward_w(x, dy);
  const Shape& s = shape_.weight;
  if (!shape_.transposed) return dw.reshape(s);
  return swapped(dw, s[0], s[2], s[1], s[3] * s[4]).reshape(s);
}

}  // namespace fq::detail
