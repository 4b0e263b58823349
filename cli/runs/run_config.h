#pragma once

/// config.json of a run directory, and how a run is resumed from it.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/training.h"

namespace fq::cli {

/// {"fakequant": version, "run_format", "command", "started", .., "given": {flag: value}, "defaults": {..},
/// "settings": what decides the bits, "machine": {..}}; files that flags name are told by their whole paths.
[[nodiscard]] nlohmann::ordered_json run_config(const Flags& flags, const Run& run,
                                                const TrainerOptions& options,
                                                const nlohmann::json& settings);

/// `--resume RUN` and `--resume=RUN` become --resume, --output RUN and the flags that the run began with, as
/// far as they are not given anew. Any other arguments are given back as they are. Throws FileError and
/// ArgumentError for what is no run directory, and for flags of it that this version does not have.
[[nodiscard]] std::vector<std::string> resumed_arguments(const FlagSet& set,
                                                         std::vector<std::string> arguments);

/// The steps that a checkpoint's run has done; 0 without one.
[[nodiscard]] std::int64_t step_of(const StateDict& saved);
/// The checkpoint at the run's output; with --allow-changes as if it had been a run of these settings.
[[nodiscard]] StateDict checkpoint_to_resume(const Run& run, const Flags& flags,
                                             const TrainerOptions& options, const nlohmann::json& settings);
/// Without --epochs and --steps a run goes on to the end that it was to have, as its directory or its
/// checkpoint tells. Throws FileError for a length that is none.
void take_length(const Run& run, const Flags& flags, const StateDict& saved, TrainerOptions& options);
/// Throws ArgumentError for fewer epochs or steps than the run has done, and, without --allow-changes, than
/// it was to have.
void check_length(const Run& run, const Flags& flags, const TrainerOptions& options, const StateDict& saved);
/// What a run that is done came to, as its directory tells it; null where that does not tell the end.
[[nodiscard]] nlohmann::ordered_json told_result(Run& run, const Flags& flags, const StateDict& saved);

}  // namespace fq::cli
