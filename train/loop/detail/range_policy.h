#pragma once

/// Quantizer ranges and batch norm statistics of a model during training.

#include <cstdint>
#include <string>
#include <vector>

#include "fakequant/core/variable.h"
#include "fakequant/train/loop/trainer.h"

namespace fq {
class BatchNorm;
class TensorQuantizer;
}  // namespace fq

namespace fq::detail {

/// Decides for each step which quantizers quantize, which activation ranges run and which batch norms are
/// frozen. Limits how far a step moves a learned range.
class RangePolicy {
 public:
  /// Turns the ranges that `options` learn into parameters. Finds the enabled quantizers and the batch norms
  /// that are not frozen. Throws ArgumentError for a learned range without calibration.
  RangePolicy(Module& model, const TrainerOptions& options);

  /// State of the model in a step. The default is the deployed model.
  struct Phase {
    bool quantizing = true, running = false, bn_frozen = false;
    double amax_momentum = 0.01;
    bool operator==(const Phase&) const = default;
  };
  /// Returns the phase of a step, counted from 0.
  [[nodiscard]] Phase phase(std::int64_t step) const;

  /// Puts the model into a phase until the end of the block, then into the deployed state. Checkpoints and
  /// evaluation see the deployed model.
  class Scope {
   public:
    Scope(const RangePolicy& policy, const Phase& phase) : policy_(policy) { policy_.set(phase); }
    ~Scope() { policy_.set({}); }
    Scope(const Scope&) = delete;  // tied to its block
    Scope& operator=(const Scope&) = delete;

   private:
    const RangePolicy& policy_;
  };

  /// Remembers the learned ranges before an optimizer step. Waits for a GPU if there are learned ranges.
  void begin_step();
  /// Limits each learned range to half and twice its value before the step, and to at least 2^-23. A high
  /// learning rate would otherwise take a range to zero or infinity, where its gradient vanishes. NaN stays,
  /// so that the checks of the run find it.
  void end_step();
  /// Returns how often `end_step` limited a range.
  [[nodiscard]] std::int64_t limited() const noexcept { return limited_; }
  /// Logs a warning if `end_step` limited a range.
  void warn_of_limits() const;

 private:
  struct LearnedRange {
    std::string name;
    Variable amax;
    std::vector<float> before = {};
    bool was_limited = false;
  };

  void set(const Phase& phase) const;

  const TrainerOptions& options_;
  std::vector<TensorQuantizer*> quantizers_;
  std::vector<TensorQuantizer*> activations_;
  std::vector<BatchNorm*> norms_;
  std::vector<LearnedRange> learned_;
  std::int64_t limited_ = 0;
};

}  // namespace fq::detail
