#include "fakequant/train/loop/detail/switches.h"

#include "fakequant/layers/modules/norm.h"
#include "fakequant/layers/quantize.h"

namespace fq::detail {
namespace {

/// Of every step: grids are made anew only where something changes.
void set_running(TensorQuantizer& quantizer, const Switches::Phase& phase) {
  const QuantizerSettings& now = quantizer.settings();
  const bool running = phase.running && now.has_fixed_range();
  if (now.running == running && now.momentum == phase.amax_momentum) return;
  quantizer.update([&](QuantizerSettings& settings) {
    settings.running = running;
    settings.momentum = phase.amax_momentum;
  });
}

}  // namespace

Switches::Switches(Module& model) {
  const auto weights = weight_quantizers(model);
  for (const auto& entry : named_quantizers(model)) {
    if (!entry.quantizer->settings().enabled || !entry.quantizer->quantizing()) continue;
    quantizers_.push_back(entry.quantizer);
    if (!weights.contains(entry.quantizer)) activations_.push_back(entry.quantizer);
  }
  for (const auto& [name, module] : model.named_modules())
    if (auto* norm = dynamic_cast<BatchNorm*>(module); norm != nullptr && !norm->frozen())
      norms_.push_back(norm);
}

void Switches::set(const Phase& phase) {
  for (auto* quantizer : quantizers_) quantizer->set_quantizing(phase.quantizing);
  for (auto* quantizer : activations_) set_running(*quantizer, phase);
  for (auto* norm : norms_) norm->freeze(phase.bn_frozen);
}

}  // namespace fq::detail
