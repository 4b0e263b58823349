#include "fakequant/layers/modules/detail/module_scopes.h"

#include <algorithm>

#include "fakequant/core/error.h"

namespace fq::detail {

EvaluationMode::EvaluationMode(Module& model) : model_(model), training_(model.training()) {
  for (auto& [name, slot] : model.named_slots()) {
    const bool training = slot->module->training();
    below_.emplace_back(std::move(slot), training);
  }
  // Already in evaluation mode: nothing to change or to restore.
  if (std::ranges::none_of(below_, [](const auto& entry) { return entry.second; }) && !training_)
    below_.clear();
  else
    model.eval();
}

EvaluationMode::~EvaluationMode() {
  // The root first, because train() sets all modules below. The loop then restores the modules in another
  // mode.
  if (training_) model_.train();
  for (const auto& [slot, training] : below_)
    if (slot->module->training() != training) slot->module->train(training);
}

OnHost::OnHost(Module& model) : model_(model), device_(model.device()) {
  if (device_ != Device::cpu()) model_.to(Device::cpu());
}

// A destructor must not throw, and the move back may fail for memory. The model then stays on the host.
OnHost::~OnHost() {
  if (device_ == Device::cpu()) return;
  try {
    model_.to(device_);
  } catch (const Error&) {
  }
}

}  // namespace fq::detail
