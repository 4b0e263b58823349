#include "fakequant/train/loop/evaluate.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/moves.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/detail/whole_number.h"
#include "fakequant/train/loop/detail/evaluation.h"

namespace fq {
namespace {

constexpr std::string_view kEarly = "early_stopping";

}  // namespace

Tensor predictions(const Tensor& logits) { return detail::predicted_classes(logits).to(Device::cpu()); }

std::int64_t count_correct(const Tensor& logits, const Tensor& labels) {
  return detail::count_equal(predictions(logits), labels);
}

Evaluation evaluate(Module& model, DataLoader& loader, const std::atomic<bool>* stop, const Loss& loss,
                    const std::vector<std::string>& metrics, const MetricOptions& options,
                    Communicator* ranks) {
  detail::ScoreSum sum(loss, metrics, options);
  const bool whole =
      detail::visit_outputs(model, loader, ranks, [&](const Tensor& logits, const Tensor& labels) {
        FQ_CHECK(labels.defined(), "evaluate", "the data has no labels: use predict");
        sum.add(Variable(logits), labels);
        return stop == nullptr || !*stop;
      });
  Evaluation out = sum.mean();
  out.stopped = !whole;
  return out;
}

Tensor predict(Module& model, DataLoader& loader, Communicator* ranks) {
  std::vector<Tensor> parts;
  detail::visit_outputs(model, loader, ranks, [&](const Tensor& output, const Tensor&) {
    // Moved to the host at once: all outputs may be too large for a GPU.
    parts.push_back(output.to(Device::cpu()).to(Layout::row_major));
    return true;
  });
  return detail::join(parts, 0);
}

EarlyStopping::EarlyStopping(std::int64_t patience) : patience_(patience) {
  FQ_CHECK(patience >= 0, kEarly, "the patience is {}: use 0 (never stop) or more epochs", patience);
}

void EarlyStopping::begin(const Evaluation& evaluation) {
  FQ_CHECK(epochs_ == 0, kEarly, "{} epochs were evaluated: begin before the first", epochs_);
  // A start that is not finite gives nothing to compare with: the first finite epoch is the best.
  if (!std::isfinite(evaluation.loss) || !std::isfinite(evaluation.score)) return;
  best_accuracy_ = evaluation.accuracy;
  best_loss_ = evaluation.loss;
  best_score_ = evaluation.score;
  begun_ = true;
}

bool EarlyStopping::update(const Evaluation& evaluation) {
  const double loss = evaluation.loss;
  // A higher score, or the same score with a lower loss.
  const bool better = (best_epoch_ < 0 && !begun_) || evaluation.score > best_score_ ||
                      (evaluation.score == best_score_ && loss < best_loss_);
  const bool best = better && std::isfinite(loss) && std::isfinite(evaluation.score);
  if (best) {
    best_epoch_ = epochs_;
    best_accuracy_ = evaluation.accuracy;
    best_loss_ = loss;
    best_score_ = evaluation.score;
  }
  // Epochs without improvement in a row.
  waited_ = best ? 0 : waited_ + 1;
  ++epochs_;
  return best;
}

StateDict EarlyStopping::state_dict() const {
  StateDict out;
  out.set_attribute("best_epoch", best_epoch_);
  out.set_attribute("best_accuracy", best_accuracy_);
  out.set_attribute("best_loss", best_loss_);
  out.set_attribute("best_score", best_score_);
  out.set_attribute("epochs", epochs_);
  out.set_attribute("waited", waited_);
  out.set_attribute("begun", begun_);
  return out;
}

void EarlyStopping::load_state(const StateDict& state) {
  try {
    // Loads into a copy, so that a damaged state changes nothing.
    EarlyStopping loaded(patience_);
    // -1: no epoch was better than the start.
    loaded.best_epoch_ = detail::whole_number(state, "best_epoch", kEarly, -1);
    loaded.best_accuracy_ = state.attribute("best_accuracy").get<double>();
    loaded.best_loss_ = state.attribute("best_loss").get<double>();
    loaded.best_score_ =  // older files have no score: use the accuracy
        state.has_attribute("best_score") ? state.attribute("best_score").get<double>()
                                          : loaded.best_accuracy_;
    loaded.begun_ = state.has_attribute("begun") && state.attribute("begun").get<bool>();
    loaded.epochs_ = detail::whole_number(state, "epochs", kEarly);
    loaded.waited_ = detail::whole_number(state, "waited", kEarly);
    FQ_CHECK(loaded.best_epoch_ < loaded.epochs_ && loaded.waited_ <= loaded.epochs_, kEarly,
             "the state is damaged: epoch {} was the best of {}, {} ago", loaded.best_epoch_, loaded.epochs_,
             loaded.waited_);
    *this = loaded;
  } catch (const nlohmann::json::exception& error) {
    throw ArgumentError(fmt::format("[early_stopping] the state is damaged: {}", error.what()));
  }
}

}  // namespace fq
