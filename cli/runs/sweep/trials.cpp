#include "fakequant/cli/runs/sweep/trials.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/flags/recipe.h"
#include "fakequant/cli/runs/recipe_grid.h"
#include "fakequant/cli/runs/sweep/point_settings.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/report/detail/runs/json_shape.h"

namespace fq::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

}  // namespace

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
  for (const char* shared : {"data", "model", "model-options", "seed", "device"})
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

namespace {

bool is_of_another_grid(const std::string& folder, const std::vector<Trial>& trials) {
  std::error_code none;
  const std::string path = folder + "/sweep.json";
  return fs::exists(path, none) && read_file(path) != json_text(listing_of(trials));
}

const fq::detail::JsonShape& settings_shape() {
  using S = fq::detail::JsonShape;
  static const S phase =
      S::object({{"name", S::text()}, {"command", S::text()}, {"flags", S::object_of(S::any())}});
  static const S shape =
      S::object({{"phases", S::list(phase)}, {"files", S::object_of(S::object_of(S::any()))}});
  return shape;
}

/// Empty for a trial that never began, and for one that was run with these settings.
std::vector<std::string> differences_of(const Trial& trial, const ordered_json& settings) {
  std::error_code none;
  if (fs::exists(trial.settings(), none))
    return settings_that_differ(fq::detail::load_json(trial.settings(), "sweep", settings_shape()), settings);
  if (!fs::exists(trial.report(), none)) return {};
  return {"there is no settings.json that says which"};
}

}  // namespace

void check_kept(const std::string& folder, const std::vector<Trial>& trials, const Flags& flags) {
  if (flags.on("force")) return;
  FQ_CHECK(!is_of_another_grid(folder, trials), "sweep",
           "{} holds a sweep of another grid: name another folder by --output, or give --force to begin anew",
           folder);
  const auto settings = settings_of(trials, flags);
  for (std::size_t i = 0; i < trials.size(); ++i) {
    const auto others = differences_of(trials[i], settings[i]);
    FQ_CHECK(
        others.empty(), "sweep",
        "{} was run with other settings: {}: name another folder by --output, or give --force to begin anew",
        trials[i].folder, fmt::join(others, "; "));
  }
}

void keep_listing(const std::string& folder, const std::vector<Trial>& trials, const Flags& flags) {
  const auto settings = settings_of(trials, flags);
  std::error_code none;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    fs::create_directories(trials[i].folder, none);
    const auto text = json_text(settings[i]);
    const bool same = fs::exists(trials[i].settings(), none) && read_file(trials[i].settings()) == text;
    if (same) continue;
    if (flags.on("force")) clear_outputs(trials[i], flags);
    write_file(trials[i].settings(), text);
  }
  write_file(folder + "/sweep.json", json_text(listing_of(trials)));
}

}  // namespace fq::cli
