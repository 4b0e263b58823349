#include "fakequant/core/ops/conv.h"

#include "fakequant/core/check.h"
#include "fakequant/core/ops/conv_geometry.h"
#include "fakequant/core/ops/products.h"

namespace fq::ops {
namespace {

using detail::Saved;

struct Conv {
  std::string_view name;  // a literal
  cpu::ConvShape shape;
  Attributes attributes;
  int rank;
};

/// `x_of` and `w_of` give the factors' float values again, in rank 4.
template <class X, class W>
Backward conv_backward(const Conv& conv, const Variable& x, const Variable& w, const Variable& bias, X x_of,
                       W w_of) {
  return [s = conv.shape, rank = conv.rank, need_x = x.requires_grad(), need_w = w.requires_grad(),
          need_b = bias.requires_grad(), x_of, w_of, w_shape = w.shape()](const Tensor& gradient) {
    const Tensor dy = detail::lift(gradient);
    return std::vector<Tensor>{need_x ? detail::lower(detail::conv_dx(s, dy, w_of()), rank) : Tensor{},
                               need_w ? detail::conv_dw(s, x_of(), dy).reshape(w_shape) : Tensor{},
                               need_b ? detail::bias_gradient(dy, s.o) : Tensor{}};
  };
}

Variable conv_of_floats(Conv conv, const Variable& x, const Variable& w, const Variable& bias) {
  const Tensor a = detail::lift(x.tensor()), b = detail::lift_weights(w.tensor());
  detail::check_factors(a, b, conv.name);
  Tensor y = detail::conv_y(conv.shape, a, b);
  detail::add_bias(y, bias);
  const Saved saved_a(a), saved_b(b);
  auto backward = conv_backward(
      conv, x, w, bias, [saved_a] { return saved_a.get(); }, [saved_b] { return saved_b.get(); });
  return detail::record(conv.name, detail::lower(y, conv.rank), {x, w, bias}, std::move(backward),
                        std::move(conv.attributes));
}

Variable convolve(std::string_view name, const Variable& x, const Variable& w, const Variable& bias,
                  const ConvOptions& given, int axes) {
  const ConvOptions options = detail::full_options(given, axes, name);
  Conv conv{name, detail::conv_shape(x.shape(), w.shape(), options, name), {}, axes + 2};
  if (recorder() != nullptr) conv.attributes = detail::attributes_of(options);
  detail::check_bias(bias, conv.shape.o, x, name);
  return conv_of_floats(std::move(conv), x.as_float(), w.as_float(), bias);
}

}  // namespace

Variable conv2d(const Variable& x, const Variable& w, const Variable& bias, const ConvOptions& options) {
  return convolve("conv2d", x, w, bias, options, 2);
}

Variable conv1d(const Variable& x, const Variable& w, const Variable& bias, const ConvOptions& options) {
  return convolve("conv1d", x, w, bias, options, 1);
}

}  // namespace fq::ops
