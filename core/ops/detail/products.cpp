#include "fakequant/core/ops/detail/products.h"

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"

namespace fq::detail {
namespace {

constexpr auto nhwc = Layout::channels_last;

}  // namespace

DType product_dtype(const Tensor& factor) { return factor.dtype() == DType::f64 ? DType::f64 : DType::f32; }

void check_factors(const Tensor& x, const Tensor& w, std::string_view function) {
  FQ_CHECK(x.dtype() == w.dtype() && (x.dtype() == DType::f32 || x.dtype() == DType::f64), function,
           "the input is {}, the weight {}: give both as f32, or both as f64", name(x.dtype()),
           name(w.dtype()));
  FQ_CHECK(x.device() == w.device(), function,
           "the input is on {}, the weight on {}: give both on one device", to_string(x.device()),
           to_string(w.device()));
}

void check_bias(const Variable& bias, std::int64_t channels, const Variable& x, std::string_view function) {
  if (!bias.defined()) return;
  FQ_CHECK(bias.shape() == Shape{channels}, function, "the bias is {}, the output has {} channels: give [{}]",
           to_string(bias.shape()), channels, channels);
  FQ_CHECK(bias.device() == x.device(), function,
           "the bias is on {}, the input on {}: give both on one device", to_string(bias.device()),
           to_string(x.device()));
  const auto* floats = std::get_if<Tensor>(&x.value());
  const DType dtype = floats != nullptr ? floats->dtype() : DType::f32;
  const auto* values = std::get_if<Tensor>(&bias.value());
  FQ_CHECK(values != nullptr && values->dtype() == dtype, function,
           "the bias is not {} as the input is: convert it", name(dtype));
}

void multiply(const Factor& a, const Factor& b, Tensor& out, std::int64_t batch, Sharing sharing) {
  run(out.device(), &Kernels::multiply, a, b, out, batch, sharing);
}

void multiply_scaled(const Factor& a, const Factor& b, const Tensor& scale, const Variable& bias,
                     Tensor& out) {
  run(out.device(), &Kernels::multiply_scaled, a, b, scale, bias.defined() ? bias.tensor() : Tensor(), out);
}

Tensor conv_y(const ConvShape& shape, const Tensor& x, const Tensor& w, Sharing sharing) {
  Tensor y = Tensor::empty(shape.y_shape(), product_dtype(x), x.device(), nhwc);
  run(y.device(), &Kernels::conv_forward, shape, x, w, y, sharing);
  return y;
}

Tensor conv_dx(const ConvShape& shape, const Tensor& dy, const Tensor& w, Sharing sharing) {
  Tensor dx = Tensor::empty(shape.x_shape(), product_dtype(dy), dy.device(), nhwc);
  run(dx.device(), &Kernels::conv_backward_data, shape, dy, w, dx, sharing);
  return dx;
}

Tensor conv_dw(const ConvShape& shape, const Tensor& x, const Tensor& dy) {
  Tensor dw = Tensor::empty(shape.w_shape(), product_dtype(dy), dy.device());
  run(dw.device(), &Kernels::conv_backward_weights, shape, x, dy, dw);
  return dw;
}

void add_bias(Tensor& y, const Variable& bias) {
  if (bias.defined() && y.numel() > 0) run(y.device(), &Kernels::add_bias, bias.tensor(), y);
}

Tensor bias_gradient(const Tensor& dy, std::int64_t channels) {
  Tensor db = Tensor::zeros({channels}, dy.dtype(), dy.device());
  if (dy.numel() > 0) run(dy.device(), &Kernels::bias_gradient, dy, db);
  return db;
}

}  // namespace fq::detail
