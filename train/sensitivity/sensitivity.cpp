#include "fakequant/train/sensitivity/sensitivity.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/train/sensitivity/detail/owned_quantizers.h"

namespace fq {
namespace {

using detail::QuantizedLayer;

constexpr const char* kSensitivity = "sensitivity";

/// Enables quantization and disables observers in all quantizers, until the end of the block.
class QuantizingScope {
 public:
  explicit QuantizingScope(Module& model) {
    for (const auto& entry : named_quantizers(model)) {
      auto& q = *entry.quantizer;
      states_.push_back({&q, q.observing(), q.quantizing()});
      q.set_observing(false);
      q.set_quantizing(true);
    }
  }
  ~QuantizingScope() {
    for (const auto& [q, observing, quantizing] : states_) {
      q->set_observing(observing);
      q->set_quantizing(quantizing);
    }
  }
  QuantizingScope(const QuantizingScope&) = delete;  // tied to its block
  QuantizingScope& operator=(const QuantizingScope&) = delete;

 private:
  struct State {
    TensorQuantizer* quantizer;
    bool observing, quantizing;
  };
  std::vector<State> states_;
};

void check_sensitivity_model(Module& model) {
  check_not_compressed(model, kSensitivity);
  for (const auto& entry : named_quantizers(model)) {
    const auto& q = *entry.quantizer;
    FQ_CHECK(!q.enabled() || !q.descriptor().needs_amax() || q.amax().defined(), kSensitivity,
             "'{}' has no range: calibrate the model first", entry.name);
  }
}

std::vector<QuantizedLayer> layers_that_quantize(Module& model) {
  auto layers = detail::quantized_layers(model);
  // Layers whose quantizers are all off have nothing to measure.
  std::erase_if(layers, [](const QuantizedLayer& layer) { return !layer.quantizes(); });
  FQ_CHECK(!layers.empty(), kSensitivity,
           "the model has no quantizer that is enabled: quantize and calibrate it first");
  return layers;
}

std::int64_t weights_of_layer(const Module& module) {
  const auto* quant = dynamic_cast<const QuantModule*>(&module);
  return quant != nullptr && quant->quantized_weight().defined() ? quant->quantized_weight().numel() : 0;
}

LayerSensitivity described(const QuantizedLayer& layer) {
  LayerSensitivity out;
  out.layer = layer.path;
  out.type = layer.module->type();
  out.format = detail::format_text(layer);
  out.weights = weights_of_layer(*layer.module);
  if (out.weights > 0) out.bits = weight_bits(*layer.module);
  return out;
}

void sort_by_damage(std::vector<LayerSensitivity>& layers, DamageScore order) {
  // Without labels the loss is NaN, and the divergence replaces it.
  const bool by_loss = order == DamageScore::loss && std::ranges::none_of(layers, [](const auto& l) {
                         return std::isnan(l.damage.loss_change);
                       });
  // Equal damages stay in the order of the model.
  std::ranges::stable_sort(layers, std::greater<>{}, [&](const LayerSensitivity& layer) {
    return by_loss ? layer.damage.loss_change : layer.damage.divergence;
  });
}

}  // namespace

SensitivityReport sensitivity(Module& model, DataLoader& data, const SensitivityOptions& options) {
  check_sensitivity_model(model);
  const auto layers = layers_that_quantize(model);
  detail::TrialOptions trial_options{kSensitivity, options.samples, options.cached, {}, options.ranks.get()};
  SensitivityReport out;
  detail::Swaps off;
  std::vector<detail::Swaps> trials;
  for (const auto& layer : layers) {
    out.layers.push_back(described(layer));
    trial_options.counted.insert(layer.path);
    // The reference has all quantizers off; a trial turns on the quantizers of one layer.
    auto& on = trials.emplace_back();
    for (const auto& slot : layer.quantizers) {
      on.emplace_back(slot, slot->module);
      // A shared quantizer has a slot in each reader: other readers stay off while one is measured.
      off.emplace_back(slot, detail::switched_off(detail::slot_quantizer(slot)));
    }
  }
  const detail::EvaluationMode evaluating(model);
  // Before the swap, so that the scope finds the quantizers of the model in their slots.
  const QuantizingScope quantizing(model);
  const detail::SwapScope float_scope(off);
  const auto report = detail::run_trials(model, data, trials, trial_options);
  for (std::size_t i = 0; i < layers.size(); ++i) out.layers[i].damage = report.damages[i];
  out.reference = report.reference;
  out.samples = report.samples;
  out.layer_runs = report.runs;
  out.pass_runs = report.pass_runs;
  sort_by_damage(out.layers, options.order);
  return out;
}

}  // namespace fq
