#pragma once

/// Validation of a run.

#include <optional>

#include "fakequant/train/loop/average.h"
#include "fakequant/train/loop/detail/run_inputs.h"
#include "fakequant/train/loop/evaluate.h"

namespace fq::detail {

/// Evaluates the model before the run and after each epoch, and chooses the best epoch.
class Validation {
 public:
  /// `ranks` is null for one process.
  Validation(const RunInputs& inputs, Communicator* ranks);

  /// Evaluates the model before the first step. Epochs must be better than that to be the best one. Returns
  /// whether the model is the best so far.
  bool evaluate_start();
  /// Re-estimates the statistics of batch norms and evaluates the model, both on the averages (null without).
  /// Sets `validation` and `best` of the report. Returns false if the stop flag ended the evaluation.
  bool evaluate_epoch(EpochReport& report, WeightAverage* average);

  [[nodiscard]] const EarlyStopping& early() const noexcept { return early_; }
  /// Returns whether the start or an epoch is the best so far.
  [[nodiscard]] bool has_best() const { return early_.best_epoch() >= 0 || early_.begun(); }
  [[nodiscard]] const std::optional<Evaluation>& start() const noexcept { return start_; }
  [[nodiscard]] const std::optional<Evaluation>& last() const noexcept { return last_; }

  /// Adds group `progress/validation` to a checkpoint.
  void save(StateDict& checkpoint) const { checkpoint.merge(early_.state_dict(), "progress/validation"); }
  /// Takes it back from group `progress`.
  void load(const StateDict& progress) { early_.load_state(progress.sub("validation")); }

 private:
  [[nodiscard]] Evaluation run() const;
  void reestimate_statistics(std::int64_t epoch) const;

  const RunInputs& inputs_;
  Communicator* ranks_;
  EarlyStopping early_;
  std::optional<Evaluation> start_, last_;
};

}  // namespace fq::detail
