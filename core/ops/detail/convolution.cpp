#include "fakequant/core/ops/detail/convolution.h"

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/ops/detail/conv_geometry.h"
#include "fakequant/core/ops/detail/product.h"

namespace fq::detail {

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
  constexpr auto sharing = Sharing::by_threads;
  ConvShape shape = shape_;
  shape.n = dy.dim(0);
  return lower(transposed_ ? conv_y(shape, dy, w, sharing) : conv_dx(shape, dy, w, sharing), rank_);
}

Tensor Convolution::backward_w(const Tensor& x, const Tensor& dy) const {
  return (transposed_ ? conv_dw(shape_, dy, x) : conv_dw(shape_, x, dy)).reshape(weight_shape_);
}

}  // namespace fq::detail
