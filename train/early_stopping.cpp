#include "fakequant/train/early_stopping.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "fakequant/core/check.h"

namespace fq {

EarlyStopping::EarlyStopping(std::int64_t patience) : patience_(patience) {
  FQ_CHECK(patience >= 0, "early_stopping", "the patience is {}: use 0 (never stop) or more epochs",
           patience);
}

bool EarlyStopping::update(const Evaluation& evaluation) {
  const double loss = std::isfinite(evaluation.loss) ? evaluation.loss : std::numeric_limits<double>::max();
  const bool best = best_epoch_ < 0 || evaluation.accuracy > best_accuracy_ ||
                    (evaluation.accuracy == best_accuracy_ && loss < best_loss_);
  if (best) {
    best_epoch_ = epochs_;
    best_accuracy_ = evaluation.accuracy;
    best_loss_ = loss;
  }
  waited_ = best ? 0 : waited_ + 1;
  ++epochs_;
  return best;
}

StateDict EarlyStopping::state_dict() const {
  StateDict out;
  out.set_attribute("best_epoch", best_epoch_);
  out.set_attribute("best_accuracy", best_accuracy_);
  out.set_attribute("best_loss", best_loss_);
  out.set_attribute("epochs", epochs_);
  out.set_attribute("waited", waited_);
  return out;
}

void EarlyStopping::load_state(const StateDict& state) {
  try {
    EarlyStopping loaded(patience_);
    loaded.best_epoch_ = state.attribute("best_epoch").get<std::int64_t>();
    loaded.best_accuracy_ = state.attribute("best_accuracy").get<double>();
    loaded.best_loss_ = state.attribute("best_loss").get<double>();
    loaded.epochs_ = state.attribute("epochs").get<std::int64_t>();
    loaded.waited_ = state.attribute("waited").get<std::int64_t>();
    *this = loaded;
  } catch (const nlohmann::json::exception& error) {
    throw ArgumentError(fmt::format("[early_stopping] the state is damaged: {}", error.what()));
  }
}

}  // namespace fq
