#pragma once

/// Options, execution and output that `train` and `qat` share.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/cli/augmentation.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/fine_tuning/teacher.h"
#include "fakequant/cli/flags/command_files.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/cli/optimization.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/network/network.h"
#include "fakequant/train/loop/trainer.h"

namespace fq::cli {

/// Upper bounds of flags that count steps and epochs; larger than any run.
inline constexpr std::int64_t kManySteps = std::int64_t{1} << 40;
inline constexpr std::int64_t kManyEpochs = std::int64_t{1} << 20;

/// Options of both commands. Fields without a comment match TrainerOptions and LoaderOptions.
struct TrainingOptions {
  std::string command;                    ///< "train" or "qat"
  std::int64_t usual_epochs;              ///< default of `epochs`
  std::optional<double> usual_rate = {};  ///< learning rate, for `train`; `qat` has optimization.lr

  std::string checkpoint = {}, output = {}, data = {};
  ModelOptions model = {};
  TaskText task = {};
  std::optional<std::int64_t> epochs = {}, steps = {};
  std::int64_t batch = 64;       ///< samples of a step
  std::int64_t micro_batch = 0;  ///< samples of a part of a batch; 0 for whole batches
  OptimizationOptions optimization = {};
  SamplingOptions sampling = {};
  TeacherOptions teacher = {};
  std::optional<double> label_smoothing = {};
  double clip_norm = 0, average_decay = 0;
  double val_fraction = 0;  ///< share of the data that is held out for validation
  std::int64_t seed = 0, accumulation = 1, patience = 0, save_every = 0;
  bool drop_last = true, capture = true, shard_optimizer = false;
  double rank_timeout = 600;  ///< seconds
  Reduction reduction = Reduction::exact;
  std::string checkpoint_blocks = {};
  std::optional<std::string> profile = {};  ///< file of the trace; empty for the default one
  bool resume = false, allow_changes = false, dry_run = false, verbose = false;
  std::int64_t keep_epochs = 0;  ///< checkpoints of a run directory
  std::string log = {};          ///< further files of a run directory
  GeneralOptions general = {};
  std::optional<Flags> line = {};  ///< all flags, for the run directory
};

/// Adds --output.
void add_training_output(FlagSet& set, TrainingOptions& options);
/// Adds the flags of most runs: --data, --epochs, --lr, --batch, --seed and --device.
void add_main_training_flags(FlagSet& set, TrainingOptions& options);
/// Adds the other flags of training, in groups.
void add_training_flags(FlagSet& set, TrainingOptions& options);
/// Adds --profile, --resume and other flags of one call.
void add_run_flags(FlagSet& set, TrainingOptions& options);
/// Adds the settings of both commands.
void add_training_settings(FlagSet& set, TrainingOptions& options);

/// A run before its start.
struct Run {
  Network network;
  std::shared_ptr<const Dataset> data = {};  ///< the group train, including the share of --val-fraction
  std::string out = {};                      ///< checkpoint; in a run directory the last one
  bool resume = false;                       ///< resumes from `out`
  std::string initialised = {};              ///< summary of --init (initial_weights.h)
};

/// Returns the output, and the flags that name files to read.
[[nodiscard]] RunTarget run_target(const TrainingOptions& options);
/// Returns the checkpoint of --output.
[[nodiscard]] std::string output_checkpoint(const TrainingOptions& options);
/// Returns true if --resume is given and the output exists.
[[nodiscard]] bool resuming(const TrainingOptions& options);
/// Throws FileError unless the checkpoint at `path` belongs to a network with that identity.
void check_same_network(const Identity& wanted, const StateDict& state, const std::string& path);

/// Returns the options of the Trainer. Throws ArgumentError for incompatible options.
[[nodiscard]] TrainerOptions trainer_options(const TrainingOptions& options);

/// Throws ArgumentError if the data cannot provide the batches.
void check_batches(const Run& run, const TrainingOptions& options);
/// Throws the errors of a run before its first step, except for errors of --resume. Works on a copy of the
/// network, with placeholders for unknown ranges.
void check_training(const Run& run, const TrainingOptions& options, TrainerOptions trainer);
/// Adds the checkpoints that a run will write. `network` is null if it is not known yet.
void plan_outputs(const Network* network, const TrainingOptions& options, PlannedFiles& planned);
/// Returns "train for 10 epochs on data.h5", for a plan.
[[nodiscard]] std::string training_step(const TrainingOptions& options);

/// Trains, prints the report, and returns the result for machines. Throws Interrupted after a signal.
nlohmann::ordered_json train_network(Run& run, TrainerOptions trainer, const TrainingOptions& options,
                                     Output& output);

}  // namespace fq::cli
