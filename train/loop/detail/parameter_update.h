#pragma once

/// The parameter update of an optimizer step.

#include <memory>
#include <optional>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/train/loop/average.h"
#include "fakequant/train/loop/detail/range_policy.h"
#include "fakequant/train/loop/detail/run_progress.h"

namespace fq::detail {

/// Clips the gradients, steps the optimizer, merges low-rank adapters and updates the weight average.
class ParameterUpdate {
 public:
  /// The quantizers' learned ranges must be parameters already.
  ParameterUpdate(const RunInputs& inputs, const RunProgress& progress, RangePolicy& ranges);

  /// Updates the parameters with their gradients times `scale`, at the learning rate of the run's next step,
  /// then clears the gradients. Throws NumericError
  /// before the update, if a small parameter has NaN or infinity in its gradient (on the CPU), or if the
  /// gradient norm is not finite (with clipping).
  void apply(double scale);
  void zero_gradients();
  /// Returns the learning rate of the last update.
  [[nodiscard]] double learning_rate() const { return optimizer_->learning_rate(); }
  /// Returns null without averages.
  [[nodiscard]] WeightAverage* average() { return average_ ? &*average_ : nullptr; }
  [[nodiscard]] const WeightAverage* average() const { return average_ ? &*average_ : nullptr; }

  /// Adds the groups `optimizer` and `adapters` to a checkpoint. The averages are not part of them
  /// (put_average).
  void save(StateDict& checkpoint) const;
  void load(const StateDict& checkpoint);

 private:
  void check_gradients() const;

  const RunInputs& inputs_;
  const RunProgress& progress_;
  RangePolicy& ranges_;
  std::unique_ptr<LowRankAdapters> adapters_;  // null without adapters
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<Variable> parameters_;  // of the optimizer
  std::optional<WeightAverage> average_;
};

}  // namespace fq::detail
