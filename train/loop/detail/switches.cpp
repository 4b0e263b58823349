#include "fakequant/train/loop/detail/switches.h"

#include "fakequant/layers/modules/norm.h"
#include "fakequant/layers/quantize.h"

namespace fq::detail {

Switches::Switches(Module& model) {
  for (const auto& entry : named_quantizers(model)) {
    if (!entry.quantizer->enabled() || !entry.quantizer->quantizing()) continue;
    quantizers_.push_back(entry.quantizer);
    if (entry.name.find("weight_quantizer") == std::string::npos) activations_.push_back(entry.quantizer);
  }
  for (const auto& [name, module] : model.named_modules())
    if (auto* norm = dynamic_cast<BatchNorm*>(module); norm != nullptr && !norm->frozen())
      norms_.push_back(norm);
}

void Switches::set(const Phase& phase) {
  for (auto* quantizer : quantizers_) quantizer->set_quantizing(phase.quantizing);
  for (auto* quantizer : activations_) quantizer->set_running(phase.running, phase.amax_momentum);
  for (auto* norm : norms_) norm->freeze(phase.bn_frozen);
}

}  // namespace fq::detail
