#pragma once

/// A step of a run that several processes share out: who has which of its batches, and what becomes of them.

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

/// Every batch of a step begins with what the step began with: running statistics and ranges move by the mean
/// of what the batches moved them by, weighted by samples. Gradients and these are summed exactly, losses are
/// added in the order of the batches, so that a step has the same bits for any number of ranks; but for
/// gradients that are to be summed as floats. Ranges that grow (QuantizerRange) become the largest that a
/// batch of any rank has made of them.
class SharedStep {
 public:
  /// Result of a batch.
  struct BatchResult {
    double loss = 0;
    std::int64_t correct = 0, samples = 0;
  };

  /// `running`: ranges of activations move with the batches.
  SharedStep(std::shared_ptr<Communicator> ranks, Module& model, bool running,
             fq::Reduction reduction = fq::Reduction::exact);

  [[nodiscard]] Communicator& ranks() const noexcept { return *ranks_; }
  /// Before the forward pass of a batch of this rank, in a step of `batches`. In its last one sums begin
  /// while the backward pass runs, which must report leaves (LeafScope).
  void begin_batch(std::int64_t batches);
  /// A gradient of that batch is complete.
  void ready(const Gradient& leaf);
  /// After its backward pass, whose gradients are those of the sum over samples.
  void end_batch(const BatchResult& result);
  /// Of the batch that has just begun: all ranks throw it when the step ends.
  void fail(std::exception_ptr error);
  /// A batch of another rank.
  void pass_over();

  /// Made by all ranks: puts the sums in place of the gradients, moves statistics and ranges, and returns
  /// the results of all batches, in their order. `stop` becomes whether any rank asks for it. Throws what `fail`
  /// was given, on ranks without an error NumericError of the same words.
  std::vector<BatchResult> finish(bool& stop);

 private:
  /// Before the first batch of a step on this rank, or at its end where the rank has none.
  void begin_step();
  [[nodiscard]] std::vector<Tensor> moving() const;
  void take_growth();
  void grow();
  void forget();
  void throw_failure(bool& stop);
  [[nodiscard]] std::vector<BatchResult> all_results();
  /// Whether this rank has no further batch in a step of so many.
  [[nodiscard]] bool last_of(std::int64_t batches) const;
  void move(const std::vector<BatchResult>& told);

  std::shared_ptr<Communicator> ranks_;
  Module& model_;
  std::vector<Variable> parameters_;
  std::vector<TensorQuantizer*> quantizers_, running_;
  std::vector<TensorQuantizer*> growing_;  // in this step
  std::vector<RangeGrowth> at_start_,
      grown_;  // of `growing_`: before the step, and the largest of its batches
  bool begun_ = false;
  GradientBuckets buckets_;
  std::vector<Tensor> start_;                       // of `moving`
  std::vector<std::vector<Tensor>> terms_, moves_;  // of each batch of this rank: gradients, and what moved
  std::vector<std::optional<BatchResult>> batches_;
  bool last_ = false;   // of this rank's batches in the step
  bool again_ = false;  // sums began too early
  std::exception_ptr error_;
};

}  // namespace fq::detail
