#include "fakequant/core/ops/activation.h"

#include <limits>

#include "fakequant/core/ops/detail/elementwise.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/shape.h"

namespace fq::ops {
namespace {

Attributes number(std::string name, double value) {
  return detail::traced([&] { return Attributes{{std::move(name), value}}; });
}

/// Returns the slopes of channels in a shape that broadcasts against x.
Variable along_channels(const Variable& slope, const Variable& x) {
  if (slope.rank() != 1 || slope.numel() == 1 || x.rank() < 2 || slope.dim(0) != x.dim(1)) return slope;
  Shape shape(static_cast<std::size_t>(x.rank() - 1), 1);
  shape[0] = slope.dim(0);
  return reshape(slope, shape);
}

}  // namespace

Variable relu(const Variable& x) {
  // The ReLU stays pending: the reader applies it with its rounding and includes it in its mask, so the
  // gradient passes here unchanged.
  if (const auto* sums = x.accumulator(); sums != nullptr && !sums->is_deferred()) {
    Accumulator flagged = *sums;
    flagged.relu = true;
    return detail::record("relu", std::move(flagged), {x}, detail::pass_gradient);
  }
  // Unsigned codes are never negative, and ReLU keeps all of them.
  const auto* codes = x.quantized();
  if (codes != nullptr && codes->grid.format.is_integer() && codes->grid.format.integer().is_unsigned)
    return detail::record("relu", detail::with_codes(*codes, codes->codes), {x}, detail::pass_gradient);
  return detail::apply_function("relu", x, detail::Relu{});
}

Variable relu6(const Variable& x) { return detail::apply_function("relu6", x, detail::Relu6{}); }

Variable clip(const Variable& x, double low, double high) {
  FQ_CHECK(low <= high, "clip", "the bounds are {} and {}: the first must not be above the second", low,
           high);
  return detail::apply_function("clip", x, detail::Clip{low, high}, detail::traced([&] {
                                  return Attributes{{"low", low}, {"high", high}};
                                }));
}

Variable leaky_relu(const Variable& x, double slope) {
  FQ_CHECK(slope >= 0, "leaky_relu", "the slope is {}: it must not be negative", slope);
  return detail::apply_function("leaky_relu", x, detail::LeakyRelu{slope}, detail::traced([&] {
                                  return Attributes{{"slope", slope}};
                                }));
}

Variable gelu(const Variable& x, bool approximate_tanh) {
  auto attributes = detail::traced([&] {
    return Attributes{{"approximate", std::string(approximate_tanh ? "tanh" : "none")}};
  });
  return approximate_tanh ? detail::apply_function("gelu", x, detail::GeluTanh{}, std::move(attributes))
                          : detail::apply_function("gelu", x, detail::Gelu{}, std::move(attributes));
}

Variable silu(const Variable& x) { return detail::apply_function("silu", x, detail::Silu{}); }
Variable sigmoid(const Variable& x) { return detail::apply_function("sigmoid", x, detail::Sigmoid{}); }
Variable tanh(const Variable& x) { return detail::apply_function("tanh", x, detail::Tanh{}); }
Variable hard_sigmoid(const Variable& x) {
  return detail::apply_function("hard_sigmoid", x, detail::HardSigmoid{});
}
Variable hard_swish(const Variable& x) {
  return detail::apply_function("hard_swish", x, detail::HardSwish{});
}

Variable softsign(const Variable& x) { return detail::apply_function("softsign", x, detail::Softsign{}); }
Variable mish(const Variable& x) { return detail::apply_function("mish", x, detail::Mish{}); }
Variable log_sigmoid(const Variable& x) {
  return detail::apply_function("log_sigmoid", x, detail::LogSigmoid{});
}

Variable elu(const Variable& x, double alpha) {
  return detail::apply_function("elu", x, detail::Elu{alpha, 1.0, 1.0}, number("alpha", alpha));
}

Variable celu(const Variable& x, double alpha) {
  FQ_CHECK(alpha != 0.0, "celu", "alpha is 0: it must be another number");
  // alpha * (exp(x / alpha) - 1) below 0 (Barron, arXiv:1704.07483).
  return detail::apply_function("celu", x, detail::Elu{alpha, alpha, 1.0}, number("alpha", alpha));
}

Variable selu(const Variable& x) {
  // The fixed point of mean 0 and variance 1 (Klambauer et al., arXiv:1706.02515), with PyTorch's digits.
  constexpr double alpha = 1.6732632423543772848170429916717, gain = 1.0507009873554804934193349852946;
  return detail::apply_function("selu", x, detail::Elu{alpha, 1.0, gain});
}

Variable softplus(const Variable& x, double beta, double threshold) {
  FQ_CHECK(beta > 0, "softplus", "beta is {}: it must be above 0", beta);
  return detail::apply_function("softplus", x, detail::Softplus{beta, threshold}, detail::traced([&] {
                                  return Attributes{{"beta", beta}, {"threshold", threshold}};
                                }));
}

Variable prelu(const Variable& input, const Variable& slope) {
  const auto x = detail::floats(input, "prelu"), s = detail::matching_floats(slope, x.tensor, "prelu");
  return detail::composite("prelu", {x.variable, s.variable}, {}, [&] {
    // Composed of max(x, 0) and slope * min(x, 0): the gradient of the slope follows from `multiply`.
    const Variable below = clip(x.variable, -std::numeric_limits<double>::infinity(), 0.0);
    return add(relu(x.variable), multiply(below, along_channels(s.variable, x.variable)));
  });
}

Variable glu(const Variable& input, int axis) {
  const auto x = detail::floats(input, "glu");
  const int at = normalize_axis(axis, x.tensor.rank(), "glu");
  const std::int64_t size = x.tensor.dim(at);
  FQ_CHECK(size % 2 == 0, "glu", "axis {} of {} has {} elements: it must have an even number", at,
           to_string(x.tensor.shape()), size);
  auto attributes = detail::traced([&] { return Attributes{{"axis", std::int64_t{at}}}; });
  return detail::composite("glu", {x.variable}, std::move(attributes), [&] {
    const Variable gate = sigmoid(slice(x.variable, at, size / 2, size));
    return multiply(slice(x.variable, at, 0, size / 2), gate);
  });
}

}  // namespace fq::ops
