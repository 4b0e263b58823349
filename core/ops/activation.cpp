#include "fakequant/core/ops/activation.h"

#include "fakequant/core/numerics/detail/activations.h"
#include "fakequant/core/ops/detail/operator.h"

namespace fq::ops {
namespace {

template <class F>
Variable apply(std::string_view op, const Variable& input, F f, Attributes attributes = {}) {
  const auto x = detail::floats(input, op);
  Tensor y = detail::empty_like(x.tensor);
  detail::run(y.device(), &detail::Kernels::activate, x.tensor, detail::Activation{f}, y);
  const detail::Saved saved(F::of_output ? y : x.tensor);
  const auto backward = [f, saved](const Tensor& dy) {
    Tensor dx = detail::empty_like(dy);
    detail::run(dx.device(), &detail::Kernels::activate_backward, dy, saved.get(), detail::Activation{f}, dx);
    return std::vector<Tensor>{dx};
  };
  return detail::record(op, y, {x.variable}, backward, std::move(attributes));
}

std::vector<Tensor> pass(const Tensor& dy) { return {dy}; }

}  // namespace

Variable relu(const Variable& x) {
  if (const auto* sums = x.accumulator()) {
    Accumulator flagged = *sums;
    flagged.relu = true;
    return detail::record("relu", std::move(flagged), {x}, pass);
  }
  const auto* codes = x.quantized();
  if (codes != nullptr && codes->spec.format.is_integer() && codes->spec.format.integer().is_unsigned)
    return detail::record("relu", detail::with_codes(*codes, codes->codes), {x}, pass);
  return apply("relu", x, detail::Relu{});
}

Variable relu6(const Variable& x) { return apply("relu6", x, detail::Relu6{}); }

Variable clip(const Variable& x, double low, double high) {
  FQ_CHECK(low <= high, "clip", "the bounds are {} and {}: the first must not be above the second", low,
           high);
  return apply("clip", x, detail::Clip{low, high}, detail::traced([&] {
                 return Attributes{{"low", low}, {"high", high}};
               }));
}

Variable leaky_relu(const Variable& x, double slope) {
  FQ_CHECK(slope >= 0, "leaky_relu", "the slope is {}: it must not be negative", slope);
  return apply("leaky_relu", x, detail::LeakyRelu{slope}, detail::traced([&] {
                 return Attributes{{"slope", slope}};
               }));
}

Variable gelu(const Variable& x, bool approximate_tanh) {
  auto attributes = detail::traced([&] {
    return Attributes{{"approximate", std::string(approximate_tanh ? "tanh" : "none")}};
  });
  return approximate_tanh ? apply("gelu", x, detail::GeluTanh{}, std::move(attributes))
                          : apply("gelu", x, detail::Gelu{}, std::move(attributes));
}

Variable silu(const Variable& x) { return apply("silu", x, detail::Silu{}); }
Variable sigmoid(const Variable& x) { return apply("sigmoid", x, detail::Sigmoid{}); }
Variable tanh(const Variable& x) { return apply("tanh", x, detail::Tanh{}); }
Variable hard_sigmoid(const Variable& x) { return apply("hard_sigmoid", x, detail::HardSigmoid{}); }
Variable hard_swish(const Variable& x) { return apply("hard_swish", x, detail::HardSwish{}); }

}  // namespace fq::ops
