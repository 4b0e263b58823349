#pragma once

/// What a point of a sweep is run with: kept in its folder, so that its numbers are of nothing else.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/runs/sweep/trials.h"

namespace fq::cli {

/// {"fakequant": version, "phases": [{"name", "command", "flags": {flag: value}}], "files": {path: {"bytes",
/// "crc32c"}}} of each trial: the flags of its phases after the recipe's, the grid's and those of the line,
/// and the files that are there before the first phase.
[[nodiscard]] std::vector<nlohmann::ordered_json> settings_of(const std::vector<Trial>& trials,
                                                              const Flags& flags);
/// "train --epochs is 2 there, 20 here", of each that differs.
[[nodiscard]] std::vector<std::string> settings_that_differ(const nlohmann::ordered_json& there,
                                                            const nlohmann::ordered_json& here);
/// Removes what the phases of the trial write, and its report.
void clear_outputs(const Trial& trial, const Flags& flags);

}  // namespace fq::cli
