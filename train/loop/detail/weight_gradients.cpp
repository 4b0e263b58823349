#include "fakequant/train/loop/detail/weight_gradients.h"

namespace fq::detail {
namespace {

/// Calls `change(g, d, s)` for each element whose weight is within its range, and keeps what it returns.
template <class Change>
void change_gradient(const StaticWeight& weight, const Change& change) {
  Variable w = weight.values;
  if (!w.grad().defined()) return;
  const QuantizedTensor q = static_codes(*weight.quantizer, w);
  const auto values = w.tensor().to_vector<float>(), codes = code_values(q).to_vector<float>(),
             steps = steps_of(q);
  auto gradient = w.grad().to_vector<float>();
  const auto bound = static_cast<float>(q.spec.format.bound());
  for (std::size_t i = 0; i < gradient.size(); ++i)
    if (values[i] >= -bound * steps[i] && values[i] <= bound * steps[i])
      gradient[i] = change(gradient[i], values[i] - codes[i] * steps[i], steps[i]);
  w.set_grad(Tensor::from(gradient, w.shape()).to(w.device()));
}

}  // namespace

WeightGradients::WeightGradients(Module& model) : weights_(static_weights(model, "weight_gradients")) {}

void WeightGradients::scale_elementwise(double delta) {
  const auto factor = static_cast<float>(delta);
  for (const auto& weight : weights_)
    change_gradient(weight, [factor](float g, float d, float s) {
      const float sign = g > 0 ? 1.0F : g < 0 ? -1.0F : 0.0F;
      return g * (1 + factor * sign * (d / s));
    });
}

void WeightGradients::pull_to_codes(double strength) {
  const auto factor = static_cast<float>(2 * strength);
  for (const auto& weight : weights_)
    change_gradient(weight, [factor](float g, float d, float) { return g + factor * d; });
}

}  // namespace fq::detail
