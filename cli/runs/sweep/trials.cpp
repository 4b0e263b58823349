#include "fakequant/cli/runs/sweep/trials.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/flags/recipe.h"
#include "fakequant/cli/runs/recipe_grid.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq::cli {

std::string Trial::words() const { return fmt::format("{}", fmt::join(changes, " ")); }

std::vector<Trial> trials_of(const Flags& flags, const std::string& folder) {
  std::vector<Trial> out;
  for (auto& changes : read_grid(flags.required("recipe")).points())
    out.push_back({std::move(changes), fmt::format("{}/{:03}", folder, out.size() + 1)});
  return out;
}

std::vector<std::string> run_arguments(const Trial& trial, const Flags& flags) {
  std::vector<std::string> out{flags.required("recipe"), "--output", trial.folder, "--report",
                               trial.report()};
  for (const char* shared : {"data", "model", "model-options", "seed"})
    if (flags.given(shared)) out.insert(out.end(), {std::string("--") + shared, flags.text(shared)});
  out.emplace_back("--set");
  out.insert(out.end(), trial.changes.begin(), trial.changes.end());
  return out;
}

void check_trials(const std::vector<Trial>& trials, const Flags& flags) {
  const FlagSet set = run_flags();
  for (const auto& trial : trials) {
    const Flags line(set, run_arguments(trial, flags));
    try {
      check_recipe(read_recipe(flags.required("recipe"), line));
    } catch (const ArgumentError& error) {
      throw ArgumentError(fmt::format("{} (with {})", error.what(), trial.words()));
    } catch (const FileError& error) {
      throw FileError(error.path(), error.dataset(),
                      fmt::format("{} (with {})", error.what(), trial.words()));
    }
  }
}

nlohmann::ordered_json listing_of(const std::vector<Trial>& trials) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& trial : trials)
    list.push_back(
        {{"folder", std::filesystem::path(trial.folder).filename().string()}, {"set", trial.changes}});
  return {{"kind", "fakequant-sweep"}, {"trials", list}};
}

void keep_listing(const std::string& folder, const std::vector<Trial>& trials, bool force) {
  const std::string path = folder + "/sweep.json", text = json_text(listing_of(trials));
  std::error_code none;
  std::filesystem::create_directories(folder, none);
  const bool others = std::filesystem::exists(path, none) && read_file(path) != text;
  FQ_CHECK(!others || force, "sweep",
           "{} holds a sweep of another grid: name another folder by --output, or give --force to begin anew",
           folder);
  if (others)
    for (const auto& trial : trials) std::filesystem::remove(trial.report(), none);
  write_file(path, text);
}

}  // namespace fq::cli
