#include "fakequant/train/loop/oscillation.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/quantized.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"
#include "fakequant/train/loop/detail/static_weights.h"

namespace fq {
namespace {

constexpr std::string_view kOscillation = "oscillation";
constexpr float kOscillates = 0.005F, kFrozen = 2;

}  // namespace

const std::vector<std::string>& oscillation_modes() {
  static const std::vector<std::string> modes{"off", "track", "freeze", "dampen"};
  return modes;
}

void check(const OscillationOptions& o) {
  FQ_CHECK(std::ranges::find(oscillation_modes(), o.mode) != oscillation_modes().end(), kOscillation,
           "there is no mode '{}'{}", o.mode, detail::did_you_mean(o.mode, oscillation_modes()));
  FQ_CHECK(o.momentum > 0 && o.momentum <= 1, kOscillation, "the momentum is {}: use more than 0, at most 1",
           o.momentum);
  FQ_CHECK(o.threshold >= 0 && o.threshold < 1, kOscillation, "the threshold is {}: use 0 to less than 1",
           o.threshold);
  FQ_CHECK(o.weight > 0 && std::isfinite(o.weight), kOscillation,
           "the weight of dampening is {}: use more than 0", o.weight);
}

OscillationTracker::OscillationTracker(Module& model, const OscillationOptions& options) : options_(options) {
  check(options);
  for (const auto& weight : detail::static_weights(model, kOscillation))
    weights_.push_back({weight.name, weight.quantizer, weight.values});
}

bool OscillationTracker::follow(Weight& w, const std::vector<float>& codes) const {
  if (w.code.empty()) {
    w.code = w.mean = codes;
    w.direction.assign(codes.size(), 0);
    w.frequency.assign(codes.size(), 0);
    return false;
  }
  const auto momentum = static_cast<float>(options_.momentum);
  bool any_frozen = false;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (w.direction[i] != kFrozen) {
      const float step = codes[i] - w.code[i], direction = step > 0 ? 1.0F : step < 0 ? -1.0F : 0.0F;
      const bool turned = direction * w.direction[i] < 0;
      if (direction != 0) w.direction[i] = direction;
      w.code[i] = codes[i];
      w.frequency[i] += momentum * ((turned ? 1.0F : 0.0F) - w.frequency[i]);
      w.mean[i] += momentum * (codes[i] - w.mean[i]);
      if (options_.mode == "freeze" && w.frequency[i] > static_cast<float>(options_.threshold)) {
        w.direction[i] = kFrozen;
        w.code[i] = std::nearbyint(w.mean[i]);
      }
    }
    any_frozen |= w.direction[i] == kFrozen;
  }
  return any_frozen;
}

void OscillationTracker::set_frozen(Weight& w) {
  const QuantizedTensor now = detail::static_codes(*w.quantizer, w.values);
  const std::vector<std::int8_t> codes(w.code.begin(), w.code.end());
  const Device device = w.values.device();
  const auto frozen =
      dequantize({Tensor::from(codes, w.values.shape()).to(device), now.spec, {}}).to_vector<float>();
  auto values = w.values.tensor().to_vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (w.direction[i] == kFrozen) values[i] = frozen[i];
  w.values.mutable_tensor().copy_from(Tensor::from(values, w.values.shape()).to(device));
}

void OscillationTracker::update() {
  for (auto& w : weights_)
    if (follow(w, code_values(detail::static_codes(*w.quantizer, w.values)).to_vector<float>()))
      set_frozen(w);
}

OscillationShare OscillationTracker::share() const {
  std::int64_t oscillating = 0, frozen = 0, count = 0;
  for (const auto& w : weights_)
    for (std::size_t i = 0; i < w.code.size(); ++i) {
      ++count;
      if (w.direction[i] == kFrozen)
        ++frozen;
      else if (w.frequency[i] > kOscillates)
        ++oscillating;
    }
  if (count == 0) return {};
  return {double(oscillating) / double(count), double(frozen) / double(count)};
}

StateDict OscillationTracker::state_dict() const {
  StateDict out;
  for (const auto& w : weights_) {
    if (w.code.empty()) continue;
    out.set(w.name + "/code", Tensor::from(w.code, w.values.shape()));
    out.set(w.name + "/direction", Tensor::from(w.direction, w.values.shape()));
    out.set(w.name + "/frequency", Tensor::from(w.frequency, w.values.shape()));
    out.set(w.name + "/mean", Tensor::from(w.mean, w.values.shape()));
  }
  return out;
}

void OscillationTracker::load_state(const StateDict& state) {
  auto loaded = weights_;
  std::size_t found = 0;
  for (auto& w : loaded) {
    const std::array parts{std::pair{"/code", &w.code}, std::pair{"/direction", &w.direction},
                           std::pair{"/frequency", &w.frequency}, std::pair{"/mean", &w.mean}};
    for (const auto& [name, values] : parts) {
      values->clear();
      if (!state.contains(w.name + name)) continue;
      const Tensor& tensor = state.at(w.name + name);
      FQ_CHECK(tensor.shape() == w.values.shape() && tensor.dtype() == DType::f32, kOscillation,
               "the state of '{}' is {}, its weight {}", w.name, tensor.describe(),
               to_string(w.values.shape()));
      *values = tensor.to_vector<float>();
      ++found;
    }
    FQ_CHECK(w.code.size() == w.mean.size() && w.code.size() == w.direction.size() &&
                 w.code.size() == w.frequency.size(),
             kOscillation, "the state of '{}' is not whole", w.name);
    const Format& format = w.quantizer->descriptor().format();
    FQ_CHECK(
        std::ranges::all_of(
            w.code,
            [&](float q) { return q == std::nearbyint(q) && q >= format.lower() && q <= format.bound(); }),
        kOscillation, "the state of '{}' has codes that {} does not have", w.name, to_string(format));
  }
  FQ_CHECK(found == state.size(), kOscillation,
           "the state is that of other weights: {} of its {} tensors are known", found, state.size());
  weights_ = std::move(loaded);
}

}  // namespace fq
