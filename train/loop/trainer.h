#pragma once

/// Trainer: trains a model on data, with validation and checkpoints.
///
///     auto net = build_model(ModelSpec::builtin("cnn"), data->sample_shape(), data->classes());
///     auto batches = std::make_shared<DataLoader>(data, LoaderOptions{.batch_size = 64});
///     const TrainingResult result = Trainer(net, batches, {.epochs = 5, .checkpoint = {.out =
///     "run.h5"}}).fit();
///     // Quantization-aware training: quantize and calibrate the model first.
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
#include "fakequant/train/loop/evaluate.h"
#include "fakequant/train/losses.h"
#include "fakequant/train/low_rank.h"
#include "fakequant/train/optimizer.h"
#include "fakequant/train/ranks/communicator.h"
#include "fakequant/train/schedule.h"

namespace fq {

class Module;

/// Ranges of activation quantizers in training: fixed after calibration, moving averages over batches, or
/// trained as parameters (learn_ranges).
enum class AmaxMode { frozen, running, learned };

/// Objective of a run: loss, distillation and metrics.
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
  /// Smallest length in steps of a run with the whole learning rate, 0 or more. A shorter run uses
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
  double amax_rate = 1;  ///< learning rate of learned ranges, relative to the other parameters; above 0
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
  /// Processes that share the batches of a step; null for one process without exact sums. With ranks,
  /// one_rank() included, each batch of a step begins with the statistics and ranges of the beginning of the
  /// step, and gradients are summed exactly. The run then has the same bits for any number of ranks with the
  /// same number of threads each. The loader's `part`, `parts` and `turn` must be the rank, the number of
  /// ranks and `accumulation`. Only rank 0 writes files. The number of ranks is at most the number of batches
  /// per step.
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

/// State of a run after a step.
struct StepReport {
  std::int64_t epoch = 0;         ///< index of the epoch, from 0
  std::int64_t epochs = 0;        ///< epochs of the whole run
  std::int64_t step = 0;          ///< finished steps
  std::int64_t steps = 0;         ///< steps of the whole run
  double loss = 0, accuracy = 0;  ///< means of this epoch so far, accuracy 0 to 1
  double learning_rate = 0;       ///< learning rate of this step
  double images_per_second = 0;   ///< training samples per second in this epoch
  double seconds_left = 0;        ///< estimated seconds to the end of the run
  double loader_share = 0;        ///< share of the time that training waited for data, 0 to 1
};

/// State of a run after an epoch.
struct EpochReport {
  std::int64_t epoch = 0;         ///< index of the epoch, from 0
  std::int64_t epochs = 0;        ///< epochs of the whole run
  double loss = 0, accuracy = 0;  ///< means over the training batches, accuracy 0 to 1
  std::optional<Evaluation> validation;
  bool best = false;         ///< whether the validation is the best so far
  double learning_rate = 0;  ///< learning rate of the last step
  double seconds = 0;        ///< seconds since the run began or was resumed
  /// Largest number of bytes that the process had allocated on the model's device while the epoch trained.
  std::int64_t peak_memory = 0;
};

/// Functions that `fit` calls on its thread. Each may be empty. An exception of a callback ends the run.
struct TrainerCallbacks {
  std::function<void(const StepReport&)> on_step;
  std::function<void(const EpochReport&)> on_epoch;
  std::function<void(const std::string& path)> on_checkpoint;  ///< after a checkpoint was written
};

/// Result of `fit`.
struct TrainingResult {
  std::int64_t epochs = 0, steps = 0;  ///< finished, including those before a resumption
  bool stopped = false;                ///< whether ExecutionOptions::stop ended the run
  bool stopped_early = false;          ///< whether ValidationOptions::patience ended the run
  /// Number of times that a step was limited because it would have more than halved or doubled a learned
  /// range.
  std::int64_t ranges_limited = 0;
  std::optional<Evaluation> validation;      ///< validation of the last epoch
  std::optional<Evaluation> start;           ///< validation before the first step; not in resumed runs
  std::int64_t best_epoch = -1;              ///< best epoch by validation; -1 if there is none
  double best_accuracy = 0, best_score = 0;  ///< accuracy and score of the best epoch (Evaluation)
};

/// One training run. The same data, options and number of threads give the same bits. A resumed run gives the
/// bits of a run that was never stopped. The Trainer shares the model and the loaders with the caller. Do not
/// use them elsewhere while `fit` runs.
class Trainer {
 public:
  /// Creates the optimizer: quantize and calibrate the model and move it to its device before. `validation`
  /// may be null. It is read in order and chooses the best epoch.
  ///
  /// Throws ArgumentError for options out of range, data without labels, compressed weights, learned ranges
  /// without calibration, `reestimate_bn` without a live batch norm or with frozen ones, and low-rank
  /// adapters that LowRankAdapters rejects.
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

  /// Trains to the end of the run, or until ExecutionOptions::stop is true. Then it stops after the current
  /// batch and writes a checkpoint, unless gradients are half accumulated. The model then holds the averages,
  /// if the run has some, and all quantizers are on. Gradients from before the call are dropped, and so are
  /// the gradients of a run that ends with an exception.
  ///
  /// Throws NumericError naming the step or the sample if the loss or an activation is NaN or infinite. On
  /// the CPU it also checks the gradients of biases, norms and other small parameters, before they change
  /// weights. Throws NumericError naming the tensor if a parameter, a buffer, a range or an optimizer state
  /// is NaN or infinite after an epoch or before a checkpoint. Checkpoints then stay unchanged, and the
  /// message names the epoch of `out`.
  TrainingResult fit();
  /// Returns whether fit() has no step left, because a resumed run was finished or had stopped early.
  [[nodiscard]] bool done() const;

  /// Returns the state that a checkpoint would hold now. The run shares its tensors.
  [[nodiscard]] StateDict state_dict() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace fq
