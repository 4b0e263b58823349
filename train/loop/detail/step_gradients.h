#pragma once

/// Gradients of an optimizer step.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "fakequant/train/data/loader.h"
#include "fakequant/train/loop/detail/passes.h"
#include "fakequant/train/loop/detail/range_policy.h"
#include "fakequant/train/loop/detail/run_progress.h"
#include "fakequant/train/losses.h"

namespace fq::detail {

/// Computes and caches the teacher's outputs. Caches them if samples are the same in every epoch and all
/// outputs are small. Each cached part of the data is computed once, on first use, as a whole: its bits do
/// not depend on where a run begins. Otherwise the teacher runs on each batch.
class Teacher {
 public:
  /// Moves the teacher to `device` and sets evaluation mode. `training` must outlive the object.
  Teacher(std::shared_ptr<Module> model, const DataLoader& training, Device device);

  /// Returns the outputs for a batch of the loader, in its order, on the device.
  [[nodiscard]] Tensor outputs(const Batch& batch);

 private:
  [[nodiscard]] Tensor run(const Tensor& x) const;
  [[nodiscard]] bool keeps(const Tensor& some) const;
  /// Computes the outputs of a part of the data, if they are not cached. Returns false if all outputs are too
  /// large to cache.
  bool fill(std::int64_t part);

  std::shared_ptr<Module> model_;
  const DataLoader& training_;
  Device device_;
  std::int64_t rows_;  // rows of a part
  bool keeps_;
  std::vector<bool> has_;  // parts that are in all_
  Tensor all_;             // [samples, ..] on the host; undefined if outputs are not cached
};

/// Runs the forward and backward passes of the batches of a step, by one process or several ranks, and adds
/// their results to the progress of the run.
class StepGradients {
 public:
  StepGradients(const RunInputs& inputs, RunProgress& progress, const RangePolicy& ranges);

  /// Adds the gradients of a batch. Throws NumericError naming the sample, the step and the epoch, if the
  /// batch, an activation or the loss is not finite. With ranks, `finish` throws it on all of them.
  void add(const Batch& batch);
  [[nodiscard]] bool empty() const { return batches_ == 0; }
  /// Returns whether all batches of the step are there.
  [[nodiscard]] bool complete() const { return batches_ == inputs_.options.update.accumulation; }
  /// Ends the step, together with all ranks. Returns the factor of the gradients that makes their sum over
  /// the step a mean.
  [[nodiscard]] double finish();
  /// Drops the batches of an unfinished step. Their gradients stay in the parameters.
  void drop() { batches_ = samples_ = 0; }

  /// Forgets captured passes. Call it if anything but the passes and the update may have changed the model.
  void forget_capture() { passes_.forget(); }
  /// Clears the stop request of an earlier call of `fit`.
  void clear_stop() { stopped_ = false; }
  /// Returns whether to stop: at any batch for one process, at the end of a step for several ranks.
  [[nodiscard]] bool stop_requested() const;
  /// Returns null without ranks.
  [[nodiscard]] Communicator* ranks() const { return shared_ ? &shared_->ranks() : nullptr; }

 private:
  SharedStep::BatchResult run(const Batch& batch);
  void run_shared(const Batch& batch);
  /// Returns whether labels are shares of classes. The class with the largest share counts as the label.
  [[nodiscard]] bool has_mixed_classes() const;
  /// Returns the number of batches in the step of the batch that was read last.
  [[nodiscard]] std::int64_t batches_of_step() const;
  /// Returns the error with the sample of the batch that caused it, and the place in the run.
  [[nodiscard]] NumericError explained(const NumericError& error, const Batch& batch) const;
  /// Returns whether the backward pass begins at the mean loss of its batch. Otherwise it begins at the sum
  /// of the losses of the samples.
  [[nodiscard]] bool has_mean_loss() const { return inputs_.options.update.accumulation == 1 && !shared_; }

  const RunInputs& inputs_;
  RunProgress& progress_;
  const RangePolicy& ranges_;
  Passes passes_;
  std::optional<SharedStep> shared_;  // with ranks
  std::optional<Teacher> teacher_;
  std::int64_t batches_ = 0, samples_ = 0;  // since the last step
  bool stopped_ = false;                    // by any rank, known at the end of a step
};

}  // namespace fq::detail
