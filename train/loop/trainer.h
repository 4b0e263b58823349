#pragma once

/// Trainer: the loop, from data and a model to a trained model and its checkpoints.
///
///     auto net = build_model(ModelSpec::builtin("cnn"), data->sample_shape(), data->classes());
///     auto batches = std::make_shared<DataLoader>(data, LoaderOptions{.batch_size = 64});
///     const TrainingResult result = Trainer(net, batches, {.epochs = 5, .out = "run.h5"}).fit();
///     // Quantization-aware training is the same, of a model that is quantized and calibrated:
///     quantize(*net, QuantConfig::preset("int8"), {1, 1, 28, 28});
///     calibrate(*net, *batches, {.samples = 512});
///     Trainer(net, batches, {.epochs = 2, .optimizer = {.learning_rate = 1e-4}}).fit();

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/core/context.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/distillation.h"
#include "fakequant/train/loop/evaluate.h"
#include "fakequant/train/low_rank.h"
#include "fakequant/train/optimizer.h"
#include "fakequant/train/ranks/communicator.h"
#include "fakequant/train/schedule.h"

namespace fq {

class Module;

/// Ranges of activation quantizers in training: as calibrated, following the batches, or trained as
/// parameters (learn_ranges).
enum class AmaxMode { frozen, running, learned };

/// What a run is told, checked when the Trainer is made. Numbers of steps count steps of the optimizer from
/// the beginning of the run.
struct TrainerOptions {
  /// How often all samples are trained on; 0 or more.
  std::int64_t epochs = 10;
  /// Steps of the run in place of `epochs`; 0 for those. A run that ends within an epoch is validated and
  /// saved there, and may be resumed with more.
  std::int64_t steps = 0;
  std::int64_t accumulation = 1;  ///< batches a step: gradients are those of all their samples together
  /// The largest norm of all gradients together, beyond which they are scaled down; 0 does not clip.
  double clip_norm = 0;
  /// The share of a label that cross entropy spreads over all classes, 0 to less than 1. Validation is
  /// without.
  double label_smoothing = 0;
  /// What is trained on instead of cross entropy (train/losses.h has some); validation is by it too.
  /// Checkpoints do not hold it: who resumes gives it again.
  Loss loss = {};
  /// Whose outputs are followed beside the labels, with a teacher; validation is without. Checkpoints do not
  /// hold the teacher: who resumes gives it again.
  DistillationOptions distillation = {};
  /// What validation tells beside (train/metrics.h). The best epoch is that of the best first one; without
  /// any, of the highest accuracy or, where there are no right answers, the lowest loss.
  std::vector<std::string> metrics = {};
  MetricOptions metric_options = {};  ///< what they know of the labels; who resumes gives it again
  /// How the parameters are stepped.
  OptimizerOptions optimizer = {};
  ScheduleOptions schedule = {};  ///< over all steps of the run
  /// The decay of a WeightAverage, such as 0.999, by which validation and the result are; 0 does not average.
  double average_decay = 0;
  /// Epochs without improvement in validation before stopping; 0 never stops.
  std::int64_t patience = 0;
  /// Validates before the first step too: epochs have to be better than what the run begins with to be the
  /// best one. Needs validation data.
  bool validate_start = false;
  bool restore_best = false;  ///< ends with the values of the best epoch in the model, not of the last
  /// The seed of dropout; order and augmentation have that of the loader.
  std::uint64_t seed = 0;

  std::string out = {};  ///< checkpoint, after every epoch; empty for none
  /// Steps between further checkpoints within an epoch; 0 for none.
  std::int64_t save_every = 0;
  std::string model = {};  ///< JSON text that goes into checkpoints as `model`; empty for none

  /// Steps after which batch norm uses its running statistics; -1 never.
  std::int64_t freeze_bn_after = -1;
  /// Batches by which the statistics of batch norms are made anew (reestimate_batch_norm) after each epoch,
  /// before validation and the checkpoint; of the averages, where there are some. 0 keeps the running ones.
  std::int64_t reestimate_bn = 0;
  /// Steps that are trained in float before quantizers quantize.
  std::int64_t quant_start = 0;
  /// What becomes of ranges of activations while training.
  AmaxMode amax = AmaxMode::frozen;
  double amax_momentum = 0.01;  ///< of running ranges
  /// Padding that running ranges do not include.
  BatchMask mask = {};
  AmaxGradient amax_gradient = AmaxGradient::clip;  ///< of learned ranges
  /// Number of steps from which the whole learning rate is used. Shorter runs have `short_run_rate`
  /// (train/qat_defaults.h). 0 for the whole rate in every run.
  std::int64_t full_rate_steps = 0;
  double amax_rate =
      1;  ///< learning rate of learned ranges, of weights too, over that of the other parameters
  /// Those of weights too (learn_weight_ranges); else they stay. A step at most halves or doubles a learned
  /// range, and leaves it 2^-23 or more.
  bool learn_weight_ranges = false;
  /// With a rank, low-rank adapters of the weights are trained and nothing else; each step leaves in the
  /// model their sum with the weights that the run began with. Requires ranges that are not learned and
  /// `average_decay` 0.
  LowRankOptions low_rank = {};
  std::int64_t freeze_amax_after = -1;         ///< steps after which running ranges stay; -1 never
  BackwardType backward = BackwardType::bf16;  ///< numbers that gradients of quantized layers are made of

  /// Who shares out the batches of a step with this process; null for nobody. With it, one_rank() included,
  /// each batch of a step begins with the statistics and ranges that the step began with, and gradients are
  /// summed exactly (train/ranks/exact_sum.h): the run has the same bits for any number of ranks, each with
  /// as many threads. The loader's `part`, `parts` and `turn` have to be the rank, the number of ranks and
  /// `accumulation`. Only rank 0 writes files; no more ranks than batches of a step.
  std::shared_ptr<Communicator> ranks = {};
  /// How the ranks sum gradients; fp32 and bf16 give up that the bits do not depend on their number.
  Reduction reduction = Reduction::exact;
  /// Each rank keeps the optimizer's state of its part of the parameters alone
  /// (train/ranks/sharded_optimizer.h); the same bits. Needs `ranks`.
  bool shard_optimizer = false;

  std::string checkpoint_blocks = {};  ///< pattern of set_checkpointing; empty for none

  /// On a GPU: the passes over batches of one shape become CUDA graphs, with one batch a step. The same bits;
  /// `on_step` must not change the model then.
  bool capture = true;

  const std::atomic<bool>* stop = nullptr;  ///< becomes true when the run is to stop after the current batch
};

/// What is known after each step.
struct StepReport {
  std::int64_t epoch = 0;         ///< from 0
  std::int64_t epochs = 0;        ///< of the whole run
  std::int64_t step = 0;          ///< steps done
  std::int64_t steps = 0;         ///< of the whole run
  double loss = 0, accuracy = 0;  ///< means of this epoch so far, accuracy 0 to 1
  double learning_rate = 0;       ///< of this step
  /// Samples of the training data a second, and the time to the end at this pace.
  double images_per_second = 0;
  double seconds_left = 0;
  double loader_share = 0;  ///< fraction of the time in which training waited for data, 0 to 1
};

/// What is known after each epoch.
struct EpochReport {
  std::int64_t epoch = 0;         ///< from 0
  std::int64_t epochs = 0;        ///< of the whole run
  double loss = 0, accuracy = 0;  ///< means over training batches, as they were trained on
  std::optional<Evaluation> validation;
  bool best = false;  ///< by validation
  double learning_rate = 0;
  double seconds = 0;  ///< since the run, or its resumption, began
  /// Most bytes of the model's device at once in this epoch's training, of the whole process; an epoch resets
  /// the peak.
  std::int64_t peak_memory = 0;
};

/// Called on the thread of `fit`; any of them may be empty. What one throws ends the run.
struct TrainerCallbacks {
  std::function<void(const StepReport&)> on_step;
  std::function<void(const EpochReport&)> on_epoch;
  std::function<void(const std::string& path)> on_checkpoint;  ///< after it was written
};

/// What `fit` did.
struct TrainingResult {
  std::int64_t epochs = 0, steps = 0;  ///< done, those before a resumption too
  bool stopped = false;                ///< by the flag
  bool stopped_early = false;          ///< for want of improvement
  /// How often a step would have more than halved or doubled a learned range, which was held there; of this
  /// call.
  std::int64_t ranges_held = 0;
  std::optional<Evaluation> validation;  ///< of the last epoch
  std::optional<Evaluation> start;       ///< before the first step, with validate_start; not where resumed
  std::int64_t best_epoch = -1;          ///< by validation; -1 without, and where none beat the start
  double best_accuracy = 0, best_score = 0;  ///< of that epoch (Evaluation)
};

/// One run. With the same data, options and number of threads it gives the same bits; a run that is resumed
/// from a checkpoint gives those of one that was never stopped, wherever the checkpoint was made. It shares
/// the model and the loaders with whoever made them; nothing else may use those while `fit` runs.
class Trainer {
 public:
  /// Makes the optimizer, so the model must be quantized, calibrated and moved to its device before.
  /// `validation` may be null; it is read in order and chooses the best epoch.
  ///
  /// Throws ArgumentError for options out of range, data without labels, weights that are compressed,
  /// learned ranges without a calibrated one to begin with, statistics to make anew where no batch norm is
  /// live or they are to be frozen, and adapters as LowRankAdapters.
  Trainer(std::shared_ptr<Module> model, std::shared_ptr<DataLoader> training, TrainerOptions options,
          std::shared_ptr<DataLoader> validation = nullptr, TrainerCallbacks callbacks = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;  // one run
  Trainer& operator=(const Trainer&) = delete;

  /// Sets the state of the run from a checkpoint: the next call of `fit` continues there. Messages name
  /// `path`.
  ///
  /// Throws FileError if the checkpoint holds another model, no run, or impossible progress. Throws
  /// ArgumentError, naming the difference, if data (Dataset::fingerprint) or options differ from the run's,
  /// or if the run used an option that was removed. Epochs, steps, patience, file, device and options without
  /// effect on bits may differ. Files of versions without stored options and fingerprints are not checked for
  /// them.
  void resume(const StateDict& checkpoint, const std::string& path);

  /// Gradients that the model has from before are dropped, and those of a run that ends by an exception.
  ///
  /// Trains to the end, or until the flag is set: then after the current batch, with a checkpoint if
  /// gradients are not half accumulated. Leaves in the model the averages, if there are, and all quantizers
  /// switched on.
  ///
  /// Throws NumericError naming the step when the loss or an activation is NaN or infinite, or on the CPU a
  /// gradient of a bias, a norm or another small parameter, before weights are changed by it; where the
  /// sample that came in has the NaN, naming that one. And naming the tensor when after an epoch, or before a
  /// checkpoint, a parameter, a buffer, a range or a number of the optimizer is: checkpoints stay as they
  /// were then, and the message says of which epoch `out` is.
  TrainingResult fit();
  /// Whether fit() has no step left to do: of a run that was resumed when it was done, or had stopped early.
  [[nodiscard]] bool done() const;

  /// What a checkpoint would hold now; its tensors are shared with the run.
  [[nodiscard]] StateDict state_dict() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq
