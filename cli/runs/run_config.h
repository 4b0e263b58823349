#pragma once

/// config.json of a run directory, and resuming a run from it.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/training.h"

namespace fq::cli {

/// Returns {"fakequant": version, "run_format", "command", "started", .., "given": {flag: value}, "defaults":
/// {..}, "settings": settings that change the bits, "machine": {..}}. File paths are absolute.
[[nodiscard]] nlohmann::ordered_json run_config(const Flags& flags, const Run& run,
                                                const TrainerOptions& options,
                                                const nlohmann::json& settings);

/// Replaces `--resume RUN` and `--resume=RUN` by --resume, --output RUN and the flags of the first start of
/// the run. Flags in `arguments` have priority. Returns any other arguments unchanged. Throws FileError and
/// ArgumentError for a folder that is not a run directory, and for recorded flags that this version does not
/// have.
[[nodiscard]] std::vector<std::string> resumed_arguments(const FlagSet& set,
                                                         std::vector<std::string> arguments);

/// Returns the number of steps that the run of a checkpoint has completed; 0 without a run.
[[nodiscard]] std::int64_t saved_step(const StateDict& saved);
/// Returns the checkpoint at the output of the run. With --allow-changes it gets the settings of this run.
[[nodiscard]] StateDict checkpoint_to_resume(const Run& run, const TrainingOptions& given,
                                             const TrainerOptions& options, const nlohmann::json& settings);
/// Without --epochs and --steps, sets the length of the run from its directory or checkpoint. Throws
/// FileError for an invalid length.
void take_length(const Run& run, const TrainingOptions& given, const StateDict& saved,
                 TrainerOptions& options);
/// Throws ArgumentError for fewer epochs or steps than the run has completed. Without --allow-changes, also
/// throws for fewer than its planned length.
void check_length(const Run& run, const TrainingOptions& given, const TrainerOptions& options,
                  const StateDict& saved);
/// Returns the result of a finished run from its directory; null if the directory has no result.
[[nodiscard]] nlohmann::ordered_json finished_result(Run& run, const TrainingOptions& given,
                                                     const StateDict& saved);

}  // namespace fq::cli
