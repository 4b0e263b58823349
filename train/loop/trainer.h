#pragma once

/// Trainer: the loop, from data and a model to a trained model and its checkpoints.
///
///     auto net = build_model(ModelSpec::builtin("cnn"), data->sample_shape(), data->classes());
///     auto batches = std::make_shared<DataLoader>(data, LoaderOptions{.batch_size = 64});
///     const TrainingResult result = Trainer(net, batches, {.epochs = 5, .checkpoint = {.out =
///     "run.h5"}}).fit();
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

/// What a run optimizes and measures.
struct ObjectiveOptions {
  /// Loss of training and validation (train/losses.h). Empty for cross entropy. Checkpoints do not hold it: a
  /// resumed run requires the same loss again.
  Loss loss = {};
  /// Share of the target that cross entropy spreads over all classes, 0 to less than 1. Not used in
  /// validation.
  double label_smoothing = 0;
  /// Knowledge distillation: teacher, kind of loss, weight of the teacher. Not used in validation.
  /// Checkpoints do not hold the teacher: a resumed run requires the same teacher again.
  DistillationOptions distillation = {};
  /// Names of the metrics of validation (train/metrics.h). The first metric chooses the best epoch. Without
  /// metrics, the best epoch has the highest accuracy or, if labels are not classes, the lowest loss.
  std::vector<std::string> metrics = {};
  MetricOptions metric_options = {};  ///< properties of the labels that metrics need; not in checkpoints
};

/// How gradients become an update of the parameters, in addition to OptimizerOptions.
struct UpdateOptions {
  std::int64_t accumulation =
      1;                 ///< batches of one optimizer step, 1 or more; gradients average over samples
  double clip_norm = 0;  ///< largest norm of all gradients together, 0 or more; 0 does not clip
  /// Decay of the exponential weight average (WeightAverage), 0 to less than 1. Validation and the result use
  /// the averages. 0 does not average.
  double average_decay = 0;
  /// Steps of a run from which it uses the whole learning rate, 0 or more. A shorter run uses
  /// `short_run_rate` (train/qat_defaults.h). 0 uses the whole rate in every run.
  std::int64_t full_rate_steps = 0;
};

/// When a run validates, and when it stops early.
struct ValidationOptions {
  std::int64_t patience = 0;  ///< epochs without improvement before the run stops, 0 or more; 0 never stops
  /// Validates before the first step too. An epoch must improve on that result to be the best one. Requires
  /// validation data.
  bool validate_start = false;
  bool restore_best = false;  ///< at the end, sets the model to its values of the best epoch
};

/// Quantizers in training.
struct RangeOptions {
  std::int64_t quant_start = 0;         ///< steps trained in float before quantizers quantize, 0 or more
  AmaxMode amax = AmaxMode::frozen;     ///< ranges of activations
  double amax_momentum = 0.01;          ///< weight of a batch in running ranges, more than 0 and at most 1
  BatchMask mask = {};                  ///< padding that running ranges leave out
  std::int64_t freeze_amax_after = -1;  ///< steps after which running ranges stay fixed; -1 never
  /// Whether ranges of weights are learned (learn_weight_ranges). A step at most halves or doubles a learned
  /// range, and leaves at least 2^-23.
  bool learn_weight_ranges = false;
  AmaxGradient amax_gradient = AmaxGradient::clip;  ///< gradient of learned ranges
  double amax_rate =
      1;  ///< learning rate of learned ranges, relative to that of the other parameters; above 0
};

/// Batch norm in training.
struct BatchNormOptions {
  std::int64_t freeze_bn_after = -1;  ///< steps after which batch norm uses its running statistics; -1 never
  /// Batches for reestimate_batch_norm, which runs after each epoch, before validation and the checkpoint. 0
  /// keeps the running statistics. Statistics are of the averages, if the run has `average_decay`.
  std::int64_t reestimate_bn = 0;
};

/// Files of a run.
struct CheckpointOptions {
  std::string out = {};         ///< path of the checkpoint, written after each epoch; empty for none
  std::int64_t save_every = 0;  ///< steps between further checkpoints within an epoch; 0 for none
  std::string model = {};       ///< JSON text of the attribute `model` of checkpoints; empty for none
};

/// Data-parallel training.
struct DistributedOptions {
  /// Processes that share the batches of a step; null for one process without exact sums. With ranks,
  /// one_rank() included, each batch of a step begins with the statistics and ranges of the beginning of the
  /// step, and gradients are summed exactly. The run then has the same bits for any number of ranks with the
  /// same number of threads each. The loader's `part`, `parts` and `turn` must be the rank, the number of
  /// ranks and `accumulation`. Only rank 0 writes files. There are at most as many ranks as batches of a
  /// step.
  std::shared_ptr<Communicator> ranks = {};
  /// How ranks sum gradients. With fp32 and bf16, the bits depend on the number of ranks.
  Reduction reduction = Reduction::exact;
  /// Each rank keeps the optimizer state of its part of the parameters only (ShardedOptimizer). The run has
  /// the same bits. Requires `ranks`.
  bool shard_optimizer = false;
};

/// Speed, memory and control of a run.
struct ExecutionOptions {
  BackwardType backward = BackwardType::bf16;  ///< type of the gradient products of quantized layers
  std::string checkpoint_blocks = {};          ///< pattern of set_checkpointing; empty for none
  /// On a GPU, captures the passes over batches of one shape as CUDA graphs, if a step has one batch. The run
  /// has the same bits. `on_step` must not change the model.
  bool capture = true;
  const std::atomic<bool>* stop = nullptr;  ///< the run stops after the current batch when this becomes true
};

/// Training options. The Trainer constructor validates them. Numbers of steps count optimizer steps from the
/// beginning of the run.
struct TrainerOptions {
  std::int64_t epochs = 10;  ///< passes over the training data, 0 or more
  /// Optimizer steps of the run, used instead of `epochs`; 0 uses `epochs`. A run that ends within an epoch
  /// is validated and saved there. It can be resumed with more steps.
  std::int64_t steps = 0;
  std::uint64_t seed = 0;  ///< seed of dropout; order and augmentation use the seed of the loader
  ObjectiveOptions objective = {};
  OptimizerOptions optimizer = {};
  ScheduleOptions schedule = {};  ///< learning rates over all steps of the run
  UpdateOptions update = {};
  /// With a rank, trains low-rank adapters of the weights only. Each step merges them into the weights that
  /// the run began with. Requires ranges that are not learned and `average_decay` 0.
  LowRankOptions low_rank = {};
  ValidationOptions validation = {};
  RangeOptions ranges = {};
  BatchNormOptions batch_norm = {};
  CheckpointOptions checkpoint = {};
  DistributedOptions distributed = {};
  ExecutionOptions execution = {};
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
