#pragma once

/// The points of a recipe's grid, and where the files of each go.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"

namespace fq::cli {

/// One point of the grid, and where its files go.
struct Trial {
  std::vector<std::string> changes;
  std::string folder;

  [[nodiscard]] std::string report() const { return folder + "/report.json"; }
  [[nodiscard]] std::string settings() const { return folder + "/settings.json"; }
  [[nodiscard]] std::string words() const;
};

/// Of the recipe that the flags name, with folders 001, 002, .. below `folder`.
[[nodiscard]] std::vector<Trial> trials_of(const Flags& flags, const std::string& folder);
/// The line of `run` for a trial.
[[nodiscard]] std::vector<std::string> run_arguments(const Trial& trial, const Flags& flags);
/// All of them, before the first begins. Throws as `run` would, and tells the point.
void check_trials(const std::vector<Trial>& trials, const Flags& flags);
/// What sweep.json says.
[[nodiscard]] nlohmann::ordered_json listing_of(const std::vector<Trial>& trials);
/// Throws ArgumentError where the folder holds the trials of another grid, or trials that were run with other
/// settings, and not with --force.
void check_kept(const std::string& folder, const std::vector<Trial>& trials, const Flags& flags);
/// Writes sweep.json and the settings of each trial; what is there of other ones is removed.
void keep_listing(const std::string& folder, const std::vector<Trial>& trials, const Flags& flags);

}  // namespace fq::cli
