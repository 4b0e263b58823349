#pragma once

/// SharedStep: a training step whose batches are divided among several processes.

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "fakequant/core/variable.h"
#include "fakequant/layers/quantizer/range.h"
#include "fakequant/train/ranks/communicator.h"
#include "fakequant/train/ranks/detail/gradient_buckets.h"

namespace fq {
class Module;
class TensorQuantizer;
}  // namespace fq

namespace fq::detail {

/// Every batch of a step starts from the same state. Running statistics and ranges move by the mean of their
/// changes over the batches, weighted by samples. Gradients and these changes are summed exactly, and losses
/// are added in the order of the batches. So a step has the same bits for any number of ranks, except with
/// gradients that are summed as floats. Growing ranges (QuantizerRange) become the largest range of any batch
/// of any rank.
class SharedStep {
 public:
  /// Result of a batch.
  struct BatchResult {
    double loss = 0;
    std::int64_t correct = 0, samples = 0;
  };

  /// `running`: batches move the ranges of activations.
  SharedStep(std::shared_ptr<Communicator> ranks, Module& model, bool running,
             fq::Reduction reduction = fq::Reduction::exact);

  [[nodiscard]] Communicator& ranks() const noexcept { return *ranks_; }
  /// Begins a batch of this rank before its forward pass, in a step of `batches`. In the last batch of this
  /// rank, sums begin during the backward pass, which must report leaves (LeafScope).
  void begin_batch(std::int64_t batches);
  /// Reports that a gradient of the batch is complete.
  void ready(const Gradient& leaf);
  /// Ends the batch after its backward pass. The gradients must belong to the loss summed over samples.
  void end_batch(const BatchResult& result);
  /// Records an error of the current batch. All ranks throw it when the step ends.
  void fail(std::exception_ptr error);
  /// Counts a batch of another rank.
  void skip_batch();

  /// Replaces the gradients by their sums, moves statistics and ranges, and returns the results of all
  /// batches in order. All ranks must call it. Sets `stop` to whether any rank requests to stop. Throws the
  /// error of `fail`; ranks without an error throw NumericError with the same message.
  std::vector<BatchResult> finish(bool& stop);

 private:
  /// Saves the state before the first batch of a step on this rank, or at its end if the rank has no batch.
  void begin_step();
  [[nodiscard]] std::vector<Tensor> moving() const;
  void take_growth();
  void grow();
  void forget();
  void throw_failure(bool& stop);
  [[nodiscard]] std::vector<BatchResult> all_results();
  /// Returns whether this rank has no further batch in a step of `batches`.
  [[nodiscard]] bool is_last_batch(std::int64_t batches) const;
  void move(const std::vector<BatchResult>& results);

  std::shared_ptr<Communicator> ranks_;
  Module& model_;
  std::vector<Variable> parameters_;
  std::vector<TensorQuantizer*> quantizers_, running_;
  std::vector<TensorQuantizer*> growing_;  // quantizers with growing ranges in this step
  std::vector<RangeGrowth> at_start_,
      grown_;  // ranges of `growing_`: before the step, and the largest since
  bool begun_ = false;
  GradientBuckets buckets_;
  std::vector<Tensor> start_;                       // values of `moving` before the step
  std::vector<std::vector<Tensor>> terms_, moves_;  // per batch of this rank: gradients and changes
  std::vector<std::optional<BatchResult>> batches_;
  bool last_ = false;   // this is the rank's last batch in the step
  bool again_ = false;  // sums began before all gradients were there
  std::exception_ptr error_;
};

}  // namespace fq::detail
