#pragma once

/// What `train` and `qat` share: options from flags, the run, and what is told of it.

#include <string>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/flags/planned_files.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/network/network.h"
#include "fakequant/train/loop/trainer.h"

namespace fq::cli {

/// More than any run takes: the upper bounds of flags that count steps and epochs.
inline constexpr std::int64_t kManySteps = std::int64_t{1} << 40;
inline constexpr std::int64_t kManyEpochs = std::int64_t{1} << 20;

inline constexpr const char* output_help =
    "checkpoint, written whole after every epoch; of a folder, RUN/, a run directory: checkpoints, log, "
    "numbers and a "
    "page to look at";

/// A run about to begin.
struct Run {
  Network network;
  std::shared_ptr<const Dataset> data;  ///< the group train, --val-fraction of it included
  std::string out;                      ///< checkpoint, of a run directory the last one
  bool resume = false;                  ///< from `out`
  std::string initialised = {};         ///< what became of --init (initial_weights.h)
};

/// What --output leads to: the checkpoint and, with --val-fraction, that of the best epoch. Of a device, such
/// as /dev/null, only the former.
[[nodiscard]] std::vector<WrittenFile> training_files(const Flags& flags);
/// Whether --resume was given and the output is there.
[[nodiscard]] bool resuming(const Flags& flags);
/// Throws FileError unless the checkpoint at `path` is of a network with that identity.
void check_same_network(const Identity& wanted, const StateDict& state, const std::string& path);

/// The options of the flags that both commands have.
[[nodiscard]] TrainerOptions read_training(const Flags& flags);

/// Throws for flags of batches that the data cannot give.
void check_batches(const Run& run, const Flags& flags);
/// Throws what a run would throw before its first step, but for --resume. The network is no longer what it
/// was: it is as the first step would find it, and has ranges that stand in for those that are not known yet.
void check_training(Run& run, const Flags& flags, TrainerOptions options);
/// Adds the checkpoints that a run will write; `network` is null where it is not known yet.
void plan_outputs(const Network* network, const Flags& flags, PlannedFiles& planned);

/// Trains, prints, and returns what machines read. Throws Interrupted after a signal.
nlohmann::ordered_json train_network(Run& run, TrainerOptions options, const Flags& flags, Output& output);

}  // namespace fq::cli
