#include "fakequant/core/ops/convolution.h"

#include "fakequant/core/check.h"
#include "fakequant/core/ops/code_products.h"
#include "fakequant/core/ops/conv_geometry.h"
#include "fakequant/core/ops/products.h"

namespace fq::detail {
namespace {

Tensor forward(const Convolution& c, const Tensor& x, const Tensor& w) {
  return c.transposed ? conv_dx(c.shape, x, w) : conv_y(c.shape, x, w);
}
Tensor backward_x(const Convolution& c, const Tensor& dy, const Tensor& w) {
  return c.transposed ? conv_y(c.shape, dy, w) : conv_dx(c.shape, dy, w);
}
Tensor backward_w(const Convolution& c, const Tensor& x, const Tensor& dy) {
  return c.transposed ? conv_dw(c.shape, dy, x) : conv_dw(c.shape, x, dy);
}

/// `x_of` and `w_of` give the factors' float values again.
template <class X, class W>
Backward backward_of(const Convolution& c, const Variable& x, const Variable& w, const Variable& bias, X x_of,
                     W w_of) {
  return [c, x_of, w_of, w_shape = w.shape(), need_x = x.requires_grad(), need_w = w.requires_grad(),
          need_b = bias.requires_grad()](const Tensor& gradient) {
    const Tensor dy = lift(gradient);
    return std::vector<Tensor>{need_x ? lower(backward_x(c, dy, lift_weights(w_of())), c.rank) : Tensor{},
                               need_w ? backward_w(c, lift(x_of()), dy).reshape(w_shape) : Tensor{},
                               need_b ? bias_gradient(dy, c.channels()) : Tensor{}};
  };
}

Variable of_floats(const Convolution& c, const Variable& x, const Variable& w, const Variable& bias) {
  check_factors(x.tensor(), w.tensor(), c.name);
  const Tensor a = lift(x.tensor()), b = lift_weights(w.tensor());
  Tensor y = forward(c, a, b);
  add_bias(y, bias);
  const Saved saved_a(a), saved_b(b);
  auto backward = backward_of(
      c, x, w, bias, [saved_a] { return saved_a.get(); }, [saved_b] { return saved_b.get(); });
  return record(c.name, lower(y, c.rank), {x, w, bias}, std::move(backward), c.attributes);
}

Value integer_value(const Convolution& c, const QuantizedTensor& x, const QuantizedTensor& w,
                    const Variable& bias) {
  const std::int64_t largest = largest_sum(x, w, c.terms(), c.name);
  Tensor sums = Tensor::empty(c.transposed ? c.shape.x_shape() : c.shape.y_shape(), DType::i32,
                              x.codes.device(), Layout::channels_last);
  if (!sums.device().is_meta()) {
    const Tensor a = lift(x.codes), b = lift_weights(w.codes);
    (c.transposed ? cpu::exact_conv_transpose : cpu::exact_conv)(
        c.shape, codes_of(x, a), codes_of(w, b), sums.mutable_data<std::int32_t>(Layout::channels_last));
  }
  return product_sums(lower(sums, c.rank), x, w, bias, 1, largest);
}

Value minifloat_value(const Convolution& c, const QuantizedTensor& x, const QuantizedTensor& w,
                      const Variable& bias) {
  Tensor y = forward(c, lift(code_values(x)), lift_weights(code_values(w)));
  scale_products(y, product_scale(x, w, c.channels()), bias);
  return lower(y, c.rank);
}

Variable of_codes(const Convolution& c, CodeKind kind, const Variable& x, const Variable& w,
                  const Variable& bias) {
  const QuantizedTensor &a = *x.quantized(), &b = *w.quantized();
  FQ_CHECK(a.codes.device() == b.codes.device(), c.name,
           "the input is on {}, the weight on {}: give both on one device", to_string(a.codes.device()),
           to_string(b.codes.device()));
  Value y = kind == CodeKind::integers ? integer_value(c, a, b, bias) : minifloat_value(c, a, b, bias);
  const SavedCodes saved_a(a), saved_b(b);
  auto backward = backward_of(
      c, x, w, bias, [saved_a] { return saved_a.get(); }, [saved_b] { return saved_b.get(); });
  return record(c.name, std::move(y), {x, w, bias}, std::move(backward), c.attributes);
}

}  // namespace

Variable Convolution::apply(const Variable& x, const Variable& w, const Variable& bias) const {
  check_bias(bias, channels(), x, name);
  const CodeKind kind = code_kind(x, w, weight_axis());
  if (kind == CodeKind::floats) return of_floats(*this, x.as_float(), w.as_float(), bias);
  return of_codes(*this, kind, x, w, bias);
}

}  // namespace fq::detail
