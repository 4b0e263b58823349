#include "fakequant/layers/modules/detail/evaluation_mode.h"

#include <algorithm>

namespace fq::detail {

EvaluationMode::EvaluationMode(Module& model) : model_(model), training_(model.training()) {
  for (auto& [name, slot] : model.named_slots()) {
    const bool training = slot->module->training();
    below_.emplace_back(std::move(slot), training);
  }
  if (std::ranges::none_of(below_, [](const auto& entry) { return entry.second; }) && !training_)
    below_.clear();
  else
    model.eval();
}

EvaluationMode::~EvaluationMode() {
  if (training_) model_.train();
  for (const auto& [slot, training] : below_)
    if (slot->module->training() != training) slot->module->train(training);
}

}  // namespace fq::detail
