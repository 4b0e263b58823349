#include "fakequant/train/loop/detail/forward_weights.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/random.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::detail {

ForwardWeights::ForwardWeights(Module& model) : weights_(static_weights(model, "forward_weights")) {}

/// `value(w, q, s, bound, i)` of element i, its code, its scale and the largest code of its weight.
template <class Value>
void ForwardWeights::replace(const Value& value) {
  kept_.clear();
  for (std::size_t k = 0; k < weights_.size(); ++k) {
    auto& [name, quantizer, w] = weights_[k];
    const QuantizedTensor q = static_codes(*quantizer, w);
    const auto codes = code_values(q).to_vector<float>(), steps = steps_of(q);
    auto values = w.tensor().to_vector<float>();
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = value(values[i], codes[i], steps[i], q.spec.format.bound(), k, i);
    kept_.push_back(w.tensor().clone());
    w.mutable_tensor().copy_from(Tensor::from(values, w.shape()).to(w.device()));
    quantizer->set_quantizing(false);
  }
}

void ForwardWeights::soften(double inverse_slope) {
  const auto slope = static_cast<float>(1 / inverse_slope);
  replace([slope](float w, float, float s, float bound, std::size_t, std::size_t) {
    const float steps = std::clamp(w / s, -bound, bound), below = std::floor(steps), middle = below + 0.5F;
    return s * std::clamp(middle + (steps - middle) * slope, below, std::min(below + 1, bound));
  });
}

std::vector<std::vector<float>> ForwardWeights::drawn(std::uint64_t seed, std::int64_t step) const {
  std::vector<std::vector<float>> out;
  for (const auto& weight : weights_) {
    Tensor numbers = Tensor::empty(weight.values.shape());
    fill_uniform(numbers, 0, 1, seed, static_cast<std::uint64_t>(step) * weights_.size() + out.size());
    out.push_back(numbers.to_vector<float>());
  }
  return out;
}

void ForwardWeights::leave_some(double share, std::uint64_t seed, std::int64_t step) {
  const auto numbers = drawn(seed, step);
  replace([&](float w, float q, float s, float, std::size_t k, std::size_t i) {
    return numbers[k][i] < static_cast<float>(share) ? w : q * s;
  });
}

void ForwardWeights::round_at_random(std::uint64_t seed, std::int64_t step) {
  const auto numbers = drawn(seed, step);
  replace([&](float w, float, float s, float bound, std::size_t k, std::size_t i) {
    const float steps = std::clamp(w / s, -bound, bound), below = std::floor(steps);
    return s * (numbers[k][i] < steps - below ? below + 1 : below);
  });
}

void ForwardWeights::restore() {
  for (std::size_t k = 0; k < kept_.size(); ++k) {
    weights_[k].values.mutable_tensor().copy_from(kept_[k]);
    weights_[k].quantizer->set_quantizing(true);
  }
  kept_.clear();
}

}  // namespace fq::detail
