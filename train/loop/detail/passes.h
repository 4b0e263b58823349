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

/// Forward, then backward. On a GPU, batches of one shape in one phase after the first are captured: two
/// launches of graphs take the place of hundreds of kernels. What waits in the passes (a module that reads
/// values), or finds too little memory, is found when it is captured, and is called as before: the first time
/// a warning is logged.
class Passes {
 public:
  struct Options {
    double label_smoothing = 0;
    Loss loss = {};  ///< cross entropy where there is none
    /// Where the batch comes with outputs to follow; the teacher itself is not asked.
    DistillationOptions distillation = {};
    bool capture = true;
  };
  Passes(std::shared_ptr<Module> model, const Options& options);

  struct Outputs {
    Tensor loss, logits;
    Tensor predictions;  ///< i64 [N] on the device of the logits; undefined unless labels are classes
  };
  /// Of a batch on any device. `phase` is what the model is switched to, `followed` the outputs of a teacher,
  /// undefined without one.
  Outputs forward(const Batch& batch, const RangePolicy::Phase& phase, const Tensor& followed = {});
  /// Of the last `forward`: gradients of the parameters, times `seed` (1 when undefined; captured passes take
  /// no other one).
  void backward(const Tensor& seed = {});
  /// To be called when the model may have been changed otherwise than by the passes and an optimizer.
  void forget();

 private:
  struct Key {
    Shape x, y;
    RangePolicy::Phase phase;
    bool operator==(const Key&) const = default;
  };

  /// What the passes read.
  struct Input {
    Tensor x, y, followed;
  };

  /// Whether a quantizer has seen only zeros: the host decides in each step whether it quantizes.
  [[nodiscard]] bool waits_for_range() const;
  [[nodiscard]] bool repeats(const Input& batch, const RangePolicy::Phase& phase);
  [[nodiscard]] Variable label_loss(const Variable& logits, const Tensor& labels) const;
  [[nodiscard]] Variable loss_of(const Variable& logits, const Input& batch) const;
  Outputs run(const Input& batch);
  void capture(const Input& batch);

  std::shared_ptr<Module> model_;
  Options options_;
  std::vector<Variable> parameters_;
  std::vector<TensorQuantizer*> quantizers_;
  Variable loss_;  // until its backward pass
  std::optional<Key> last_, captured_, refused_;
  Input input_;  // that the captured passes read
  Outputs outputs_;
  std::vector<Tensor> gradients_;  // of the parameters
  std::unique_ptr<Capture> passes_;
  bool warned_ = false;  // that steps are not captured
};

}  // namespace fq::detail
