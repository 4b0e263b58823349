#include "fakequant/core/ops/convolution.h"

#include "fakequant/core/check.h"
#include "fakequant/core/ops/code_gradients.h"
#include "fakequant/core/ops/code_products.h"
#include "fakequant/core/ops/exact_products.h"
#include "fakequant/core/ops/conv_geometry.h"
#include "fakequant/core/ops/products.h"
#include "fakequant/core/profile.h"

namespace fq::detail {
namespace {

Tensor forward(const Convolution& c, const Tensor& x, const Tensor& w) {
  return c.transposed ? conv_dx(c.shape, x, w) : conv_y(c.shape, x, w);
}
Tensor backward_x(const Convolution& c, const Tensor& dy, const Tensor& w) {
  const ProfileScope profile("dX");
  constexpr auto sharing = cpu::Sharing::by_threads;
  return lower(c.transposed ? conv_y(c.shape, dy, w, sharing) : conv_dx(c.shape, dy, w, sharing), c.rank);
}
Tensor backward_w(const Convolution& c, const Tensor& x, const Tensor& dy, const Shape& w) {
  const ProfileScope profile("dW");
  return (c.transposed ? conv_dw(c.shape, dy, x) : conv_dw(c.shape, x, dy)).reshape(w);
}

struct Needs {
  bool x, w, bias;
  Shape w_shape;
  Needs(const Variable& a, const Variable& b, const Variable& c)
      : x(a.requires_grad()), w(b.requires_grad()), bias(c.requires_grad()), w_shape(b.shape()) {}
};

Variable of_floats(const Convolution& c, const Variable& x, const Variable& w, const Variable& bias) {
  check_factors(x.tensor(), w.tensor(), c.name);
  const Tensor a = lift(x.tensor()), b = lift_weights(w.tensor());
  Tensor y = forward(c, a, b);
  add_bias(y, bias);
  const Saved saved_a(a), saved_b(b);
  auto backward = [c, saved_a, saved_b, needs = Needs(x, w, bias)](const Tensor& gradient) {
    const Tensor dy = lift(gradient);
    return std::vector<Tensor>{needs.x ? backward_x(c, dy, saved_b.get()) : Tensor{},
                               needs.w ? backward_w(c, saved_a.get(), dy, needs.w_shape) : Tensor{},
                               needs.bias ? bias_gradient(dy, c.channels()) : Tensor{}};
  };
  return record(c.name, lower(y, c.rank), {x, w, bias}, std::move(backward), c.attributes);
}

Value integer_value(const Convolution& c, const QuantizedTensor& x, const QuantizedTensor& w,
                    const Variable& bias) {
  const std::int64_t largest = largest_sum(x, w, c.terms(), c.name);
  Tensor sums = Tensor::empty(c.transposed ? c.shape.x_shape() : c.shape.y_shape(), DType::i32,
                              x.codes.device(), Layout::channels_last);
  if (!sums.device().is_meta()) {
    const Tensor a = lift(x.codes), b = lift_weights(w.codes);
    exact_conv(c.shape, c.transposed, codes_of(x, a), codes_of(w, b), sums);
  }
  return product_sums(lower(sums, c.rank), x, w, bias, c.weight_axis(), 1, largest);
}

Value factor_value(const Convolution& c, const QuantizedTensor& x, const QuantizedTensor& w,
                   const Variable& bias) {
  const DType type = code_factor_dtype(x.codes.device());
  Tensor y = forward(c, lift(code_factor(x, -1, type)), lift_weights(code_factor(w, c.weight_axis(), type)));
  scale_products(y, product_scale(x, w, c.weight_axis(), c.channels()), bias);
  return lower(y, c.rank);
}

Variable of_codes(const Convolution& c, CodeKind kind, const Variable& x, const Variable& w,
                  const Variable& bias) {
  const QuantizedTensor &a = *x.quantized(), &b = *w.quantized();
  FQ_CHECK(a.codes.device() == b.codes.device(), c.name,
           "the input is on {}, the weight on {}: give both on one device", to_string(a.codes.device()),
           to_string(b.codes.device()));
  Value y = kind == CodeKind::integers ? integer_value(c, a, b, bias) : factor_value(c, a, b, bias);
  auto backward = [c, codes = CodeGradients(a, b, c.weight_axis()),
                   needs = Needs(x, w, bias)](const Tensor& gradient) {
    const Tensor floats = lift(gradient), dy = codes.dy(floats);
    std::vector<Tensor> out(3);
    if (needs.x) out[0] = backward_x(c, dy, lift_weights(codes.w()));
    if (needs.w) codes.finish_dw(out[1] = backward_w(c, lift(codes.x()), dy, needs.w_shape));
    if (needs.bias) out[2] = bias_gradient(floats, c.channels());
    return out;
  };
  return record(c.name, std::move(y), {x, w, bias}, std::move(backward), c.attributes);
}

}  // namespace

Variable Convolution::apply(const Variable& x, const Variable& w, const Variable& bias) const {
  const ProfileScope profile("product", "forward");
  check_bias(bias, channels(), x, name);
  const CodeKind kind = code_kind(x, w, weight_axis());
  if (kind == CodeKind::floats) return of_floats(*this, x.as_float(), w.as_float(), bias);
  return of_codes(*this, kind, x, w, bias);
}

}  // namespace fq::detail
