#pragma once

/// Evaluation and predictions of a model on data, and choice of the best epoch of a run.
///
///     DataLoader test(data, {.batch_size = 256, .shuffle = false});
///     const Evaluation result = evaluate(model, test);
///     const Tensor labels = predictions(predict(model, test));  // i64 [N]
///
/// Both set evaluation mode, record no tape and restore the mode.

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

/// Result of an evaluation: means over its samples.
struct Evaluation {
  double loss = 0;         ///< mean of the given loss, or of cross entropy without label smoothing
  double accuracy = 0;     ///< correct / count, 0 to 1; 0 without samples
  std::int64_t count = 0;  ///< evaluated samples
  std::int64_t correct = 0;
  /// Names and values of the requested metrics (train/metrics.h).
  std::vector<std::pair<std::string, double>> metrics = {};
  /// Score for comparing epochs; larger is better. The first metric, or minus it if lower is better. Without
  /// metrics, the accuracy; without class labels, minus the loss.
  double score = 0;
  bool stopped = false;  ///< whether the stop flag ended the evaluation before the last sample
};

/// Evaluates the model on epoch 0 of the loader, in evaluation mode and without a tape, and restores the
/// mode. The bits do not depend on the number of threads. Several threads may evaluate a model that is in
/// evaluation mode, each with its own loader. Stops after the current batch when `*stop` becomes true.
///
/// `loss` replaces cross entropy and decides the valid labels and outputs. Accuracy is 0 unless labels are
/// i64 [N] and outputs [N, C]. `metrics` are names of train/metrics.h, with `options`.
///
/// With `ranks`, all ranks call it and share the batches. The loader's `part` must be the rank, and its
/// `parts` and `turn` the number of ranks. Every rank gets all outputs, so that the bits are the same as with
/// one rank.
///
/// Throws ArgumentError for data without labels, labels out of range, samples that do not fit the model, and
/// a loader with another rank's `part`. Throws NumericError naming the sample if the loss is NaN, which is so
/// if an output is NaN.
[[nodiscard]] Evaluation evaluate(Module& model, DataLoader& loader, const std::atomic<bool>* stop = nullptr,
                                  const Loss& loss = {}, const std::vector<std::string>& metrics = {},
                                  const MetricOptions& options = {}, Communicator* ranks = nullptr);

/// Returns the model's outputs [N, ..] for epoch 0 of the loader, in its order: f32, row-major, on the host.
/// Runs as `evaluate` does, but allows NaN in outputs and data without labels. Use a loader that does not
/// shuffle, so that row i is sample i. `ranks` share the batches as in `evaluate`.
[[nodiscard]] Tensor predict(Module& model, DataLoader& loader, Communicator* ranks = nullptr);

/// Returns the predicted class of each row of `logits` [N, C]: i64 [N] on the host. The first of equal
/// classes is predicted, and -1 for a row with NaN.
[[nodiscard]] Tensor predictions(const Tensor& logits);

/// Returns the number of rows of `logits` [N, C] whose predicted class is the label. `labels` are i64 [N].
[[nodiscard]] std::int64_t count_correct(const Tensor& logits, const Tensor& labels);

/// Chooses the best epoch, and decides when to stop. An epoch is better if its score is higher or, with an
/// equal score, its loss is lower. An epoch with a loss or score of NaN or infinity is never the best.
class EarlyStopping {
 public:
  /// Stops after `patience` epochs in a row without improvement; 0 never stops. Throws ArgumentError if
  /// `patience` is negative.
  explicit EarlyStopping(std::int64_t patience = 0);

  /// Sets the evaluation that epochs must improve on, from before the first step. Call it before any
  /// `update`.
  void begin(const Evaluation& evaluation);
  /// Returns whether `begin` set an evaluation.
  [[nodiscard]] bool begun() const noexcept { return begun_; }
  /// Adds the evaluation of the next epoch. Returns whether it is the best so far.
  bool update(const Evaluation& evaluation);
  /// Returns whether the patience has run out.
  [[nodiscard]] bool should_stop() const noexcept { return patience_ > 0 && waited_ >= patience_; }

  /// Returns the best epoch, counted from 0 in the order of updates. Returns -1 before the first epoch, and
  /// if no epoch was better than the beginning.
  [[nodiscard]] std::int64_t best_epoch() const noexcept { return best_epoch_; }
  /// Returns the accuracy of the best epoch.
  [[nodiscard]] double best_accuracy() const noexcept { return best_accuracy_; }
  [[nodiscard]] double best_loss() const noexcept { return best_loss_; }
  [[nodiscard]] double best_score() const noexcept { return best_score_; }

  /// Returns the state for a resumed run: attributes `best_epoch`, `best_accuracy`, `best_loss`,
  /// `best_score`, `epochs`, `waited`, `begun`.
  [[nodiscard]] StateDict state_dict() const;
  /// Sets the state. Throws ArgumentError for a state without these attributes or with impossible values.
  void load_state(const StateDict& state);

 private:
  std::int64_t patience_;
  std::int64_t epochs_ = 0, waited_ = 0, best_epoch_ = -1;
  double best_accuracy_ = 0, best_loss_ = 0, best_score_ = 0;
  bool begun_ = false;
};

}  // namespace fq
