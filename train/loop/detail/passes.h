#pragma once

/// The passes of a training step over a batch.

#include <memory>
#include <optional>
#include <vector>

#include "fakequant/core/backend/capture.h"
#include "fakequant/core/variable.h"
#include "fakequant/train/data/dataset.h"
#include "fakequant/train/loop/detail/range_policy.h"
#include "fakequant/train/loop/evaluate.h"
#include "fakequant/train/losses.h"

namespace fq {
class Module;
class TensorQuantizer;
}  // namespace fq

namespace fq::detail {

/// Runs the forward and the backward pass. On a GPU, captures the passes from the second batch with the same
/// shapes and phase on: two graph launches replace hundreds of kernel launches. Capture fails if a module
/// waits for values in the passes, or if memory is too small. Then each kernel is launched by itself, and the
/// first failure logs a warning.
class Passes {
 public:
  struct Options {
    double label_smoothing = 0;
    Loss loss = {};  ///< empty for cross entropy
    /// Distillation loss for batches that come with teacher outputs. The teacher itself is not used.
    DistillationOptions distillation = {};
    bool capture = true;
  };
  Passes(std::shared_ptr<Module> model, const Options& options);

  struct Outputs {
    Tensor loss;
    Tensor logits;       // undefined unless they are [N, C]
    Tensor predictions;  ///< i64 [N] on the device of the logits; undefined unless labels are classes
  };
  /// Runs the forward pass of a batch on any device. The model is in state `phase`. `followed` has the
  /// outputs of the teacher; undefined without a teacher.
  Outputs forward(const Batch& batch, const RangePolicy::Phase& phase, const Tensor& followed = {});
  /// Runs the backward pass of the last `forward`: gradients of the parameters, times `seed` (1 if
  /// undefined). Captured passes accept no other seed.
  void backward(const Tensor& seed = {});
  /// Drops the captured passes. Call it if anything but the passes and an optimizer may have changed the
  /// model.
  void forget();

 private:
  struct Key {
    Shape x, y;
    RangePolicy::Phase phase;
    bool operator==(const Key&) const = default;
  };

  /// Inputs of the passes.
  struct Input {
    Tensor x, y, followed;
  };

  /// Returns whether a quantizer has seen only zeros. The host then decides in each step whether it
  /// quantizes.
  [[nodiscard]] bool waits_for_range() const;
  [[nodiscard]] bool repeats(const Input& batch, const RangePolicy::Phase& phase);
  [[nodiscard]] Variable label_loss(const Variable& logits, const Tensor& labels) const;
  [[nodiscard]] Variable batch_loss(const Variable& logits, const Input& batch) const;
  Outputs run(const Input& batch);
  void capture(const Input& batch);

  std::shared_ptr<Module> model_;
  Options options_;
  std::vector<Variable> parameters_;
  std::vector<TensorQuantizer*> quantizers_;
  Variable loss_;  // kept until its backward pass
  std::optional<Key> last_, captured_, refused_;
  Input input_;  // read by the captured passes
  Outputs outputs_;
  std::vector<Tensor> gradients_;  // gradients of the parameters
  std::unique_ptr<Capture> passes_;
  bool warned_ = false;  // whether a failed capture was logged
};

}  // namespace fq::detail
