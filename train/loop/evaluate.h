#pragma once

/// What a model says about data, how often it is right, and which epoch of a run was the best.
///
///     DataLoader test(data, {.batch_size = 256, .shuffle = false});
///     const Evaluation result = evaluate(model, test);
///     const Tensor labels = predictions(predict(model, test));  // i64 [N]
///
/// Both put the model into evaluation mode, record nothing, and put the mode back.

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/variable.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/losses.h"
#include "fakequant/train/metrics.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq {

class Module;

/// What was found: means over the samples that a model was evaluated on.
struct Evaluation {
  double loss = 0;         ///< mean cross-entropy, without label smoothing, or of the loss that was given
  double accuracy = 0;     ///< correct / count, 0 to 1; 0 of no samples
  std::int64_t count = 0;  ///< samples
  std::int64_t correct = 0;
  std::vector<std::pair<std::string, double>> metrics = {};  ///< those that were asked for (train/metrics.h)
  /// What epochs are compared by, the larger the better: the first metric or minus it; without one the
  /// accuracy or, where there are no right answers, minus the loss.
  double score = 0;
  bool stopped = false;  ///< by the flag, before the end: not of all samples
};

/// Runs the loader's epoch 0 in evaluation mode, without a tape, and puts the model's mode back. The bits do
/// not depend on the number of threads. A model in evaluation mode may be evaluated by several threads at
/// once, each with a loader of its own. It stops after the current batch when `*stop` becomes true.
///
/// With a `loss` of one's own labels and outputs are what it takes; accuracy is 0 unless they are i64 [N] and
/// [N, C]. `metrics` are names of train/metrics.h, with `options`.
///
/// With `ranks` it is called by all of them, and they share out the batches: the loader's `part` is the rank,
/// its `parts` and `turn` the number of ranks. Outputs go to every rank, so that the bits are those of one.
///
/// Throws ArgumentError for data without labels, labels out of range and samples that do not fit the model,
/// and for a loader that is not the rank's; NumericError naming the sample where the loss is NaN, as that of
/// outputs with a NaN is.
[[nodiscard]] Evaluation evaluate(Module& model, DataLoader& loader, const std::atomic<bool>* stop = nullptr,
                                  const Loss& loss = {}, const std::vector<std::string>& metrics = {},
                                  const MetricOptions& options = {}, Communicator* ranks = nullptr);

/// The model's outputs [N, ..] for the loader's epoch 0, in its order: f32, row-major, on the host. It runs
/// as `evaluate` does, but that outputs may be NaN; data needs no labels. Use a loader that does not shuffle,
/// so that row i is sample i. `ranks` share it out as they do an evaluation.
[[nodiscard]] Tensor predict(Module& model, DataLoader& loader, Communicator* ranks = nullptr);

/// Returns the predicted class of each row of `logits` [N, C]: i64 [N] on the host. The first of equal
/// classes is predicted, and -1 for a row with NaN.
[[nodiscard]] Tensor predictions(const Tensor& logits);

/// Returns the number of rows of `logits` [N, C] whose predicted class is the label. `labels` are i64 [N].
[[nodiscard]] std::int64_t count_correct(const Tensor& logits, const Tensor& labels);

/// Which epoch was best, and when to stop waiting for a better one. Better is a higher score or, at the same
/// one, a lower loss; an epoch whose loss or score is NaN or infinite is never the best.
class EarlyStopping {
 public:
  /// Stops after `patience` epochs in a row that were not the best; 0 never does. Throws ArgumentError for a
  /// negative one.
  explicit EarlyStopping(std::int64_t patience = 0);

  /// What epochs have to be better than: the evaluation of what a run begins with. Before any `update`.
  void begin(const Evaluation& evaluation);
  /// Whether `begin` was called.
  [[nodiscard]] bool begun() const noexcept { return begun_; }
  /// Takes the evaluation of the next epoch in. Returns whether it is the best so far.
  bool update(const Evaluation& evaluation);
  /// Whether the patience has run out.
  [[nodiscard]] bool should_stop() const noexcept { return patience_ > 0 && waited_ >= patience_; }

  /// The epoch that was best, counted from 0 in the order of updates; -1 before the first one, and while none
  /// was better than the beginning.
  [[nodiscard]] std::int64_t best_epoch() const noexcept { return best_epoch_; }
  /// What that epoch was evaluated to.
  [[nodiscard]] double best_accuracy() const noexcept { return best_accuracy_; }
  [[nodiscard]] double best_loss() const noexcept { return best_loss_; }
  [[nodiscard]] double best_score() const noexcept { return best_score_; }

  /// What a resumed run needs: attributes `best_epoch`, `best_accuracy`, `best_loss`, `best_score`, `epochs`,
  /// `waited`, `begun`.
  [[nodiscard]] StateDict state_dict() const;
  /// Takes it back. Throws ArgumentError for what is not such a state.
  void load_state(const StateDict& state);

 private:
  std::int64_t patience_;
  std::int64_t epochs_ = 0, waited_ = 0, best_epoch_ = -1;
  double best_accuracy_ = 0, best_loss_ = 0, best_score_ = 0;
  bool begun_ = false;
};

}  // namespace fq
