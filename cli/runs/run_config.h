#pragma once

/// config.json of a run directory: every flag, what it led to, and the machine.

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

}  // namespace fq::cli
