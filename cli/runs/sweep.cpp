#include <atomic>
#include <filesystem>
#include <mutex>
#include <thread>

#include <fmt/ranges.h>

#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/flags/recipe.h"
#include "fakequant/cli/runs/commands.h"
#include "fakequant/cli/runs/folder_lock.h"
#include "fakequant/cli/runs/recipe_grid.h"
#include "fakequant/cli/system/child_process.h"
#include "fakequant/cli/system/machine.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int kMostJobs = 1024;

/// One point of the grid, and where its files go.
struct Trial {
  std::vector<std::string> changes;
  std::string folder;

  [[nodiscard]] std::string report() const { return folder + "/report.json"; }
  [[nodiscard]] std::string words() const { return fmt::format("{}", fmt::join(changes, " ")); }
};

std::vector<Trial> trials_of(const Flags& flags, const std::string& folder) {
  std::vector<Trial> out;
  for (auto& changes : read_grid(flags.required("recipe")).points())
    out.push_back({std::move(changes), fmt::format("{}/{:03}", folder, out.size() + 1)});
  return out;
}

/// The line of `run` for a trial.
std::vector<std::string> run_arguments(const Trial& trial, const Flags& flags) {
  std::vector<std::string> out{flags.required("recipe"), "--output", trial.folder, "--report",
                               trial.report()};
  for (const char* shared : {"data", "model", "model-options", "seed"})
    if (flags.given(shared)) out.insert(out.end(), {std::string("--") + shared, flags.text(shared)});
  out.emplace_back("--set");
  out.insert(out.end(), trial.changes.begin(), trial.changes.end());
  return out;
}

/// All of them, before the first begins.
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

ordered_json listing_of(const std::vector<Trial>& trials) {
  ordered_json list = ordered_json::array();
  for (const auto& trial : trials)
    list.push_back({{"folder", fs::path(trial.folder).filename().string()}, {"set", trial.changes}});
  return {{"kind", "fakequant-sweep"}, {"trials", list}};
}

/// Throws when the folder holds the trials of another grid.
void keep_listing(const std::string& folder, const std::vector<Trial>& trials, bool force) {
  const std::string path = folder + "/sweep.json", text = json_text(listing_of(trials));
  std::error_code none;
  fs::create_directories(folder, none);
  const bool others = fs::exists(path, none) && read_file(path) != text;
  FQ_CHECK(!others || force, "sweep",
           "{} holds a sweep of another grid: name another folder by --output, or give --force to begin anew",
           folder);
  if (others)
    for (const auto& trial : trials) fs::remove(trial.report(), none);
  write_file(path, text);
}

class Workers {
 public:
  Workers(const std::vector<Trial>& trials, const Flags& flags, Output& output)
      : trials_(trials), flags_(flags), output_(output) {}

  /// Runs those without a report, so many at once; returns how many failed.
  int run(int jobs, int threads) {
    std::vector<std::thread> workers;
    for (int i = 0; i < jobs; ++i) workers.emplace_back([this, threads] { work(threads); });
    for (auto& worker : workers) worker.join();
    return failed_;
  }

 private:
  void work(int threads) {
    for (std::size_t i = next_++; i < trials_.size() && !stop_requested(); i = next_++) {
      const Trial& trial = trials_[i];
      std::error_code none;
      if (fs::exists(trial.report(), none)) {
        tell(fmt::format("[{}/{}] {}: done before", i + 1, trials_.size(), trial.words()));
        continue;
      }
      run_trial(trial, i, threads);
    }
  }

  void run_trial(const Trial& trial, std::size_t place, int threads) {
    std::error_code none;
    fs::create_directories(trial.folder, none);
    std::vector<std::string> words{"/proc/self/exe", "run"};
    for (auto& word : run_arguments(trial, flags_)) words.push_back(std::move(word));
    words.push_back("--threads=" + std::to_string(threads));
    words.emplace_back("--resume");
    const Stopwatch watch;
    const ProgramEnd end =
        run_program(words, {trial.folder + "/output.txt", trial.folder + "/errors.txt", 0});
    if (end.status == 0)
      return tell(
          fmt::format("[{}/{}] {}: {}", place + 1, trials_.size(), trial.words(), duration(watch.seconds())));
    ++failed_;
    tell(fmt::format("[{}/{}] {}: exit status {}, see {}/errors.txt", place + 1, trials_.size(),
                     trial.words(), end.status, trial.folder));
  }

  void tell(const std::string& text) {
    const std::scoped_lock lock(mutex_);
    output_.line(text);
  }

  const std::vector<Trial>& trials_;
  const Flags& flags_;
  Output& output_;
  std::atomic<std::size_t> next_{0};
  std::atomic<int> failed_{0};
  std::mutex mutex_;
};

/// Of the last phase that tells it.
ordered_json last_number(const ordered_json& report, const char* key) {
  ordered_json out;
  for (const auto& phase : report.value("phases", ordered_json::array()))
    if (phase.contains("result") && phase["result"].contains(key)) out = phase["result"][key];
  return out;
}

ordered_json found_of(const Trial& trial) {
  ordered_json out{{"set", trial.changes}, {"folder", trial.folder}};
  std::error_code none;
  if (!fs::exists(trial.report(), none)) return out;
  const auto report = fq::detail::parse_json<ordered_json>(read_file(trial.report()));
  for (const char* key : {"accuracy", "loss", "weight_bytes"}) out[key] = last_number(report, key);
  return out;
}

std::string result_line(const Trial& trial, const ordered_json& found) {
  const auto shown = [&](const char* key, const char* form) {
    return found.contains(key) && found[key].is_number()
               ? fmt::format(fmt::runtime(form), found[key].get<double>())
               : std::string("-");
  };
  return fmt::format("{:>9}  {:>8}  {:>12}  {}", shown("accuracy", "{:.2f} %"), shown("loss", "{:.4f}"),
                     shown("weight_bytes", "{:.0f}"), trial.words());
}

}  // namespace

FlagSet sweep_flags() {
  FlagSet set("sweep", "Runs a recipe for every point of its grid, several at once.",
              "RECIPE -o FOLDER [flags]");
  set.group("Sweep")
      .argument("recipe", "FILE", "a recipe with a \"grid\": {\"train.lr\": [0.001, 0.004], ..}")
      .value("output,o", "FOLDER", "where sweep.json and a folder for each point go")
      .value("jobs", "COUNT", "points at once (default: as many as there are cores)")
      .value("data,d", "FILE", "HDF5 data set (default: the recipe's own)")
      .value("model,m", "FILE|NAME", "model (default: the recipe's own)")
      .value("model-options", "JSON", "options of a built-in model (default: the recipe's own)")
      .value("seed", "NUMBER", "of every phase (default: the recipe's own)")
      .output("report", "FILE", "write what was found there, as JSON", kind::report)
      .toggle("dry-run", "check every point of the grid, and run none");
  add_general_flags(set);
  return set;
}

ordered_json sweep(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  const std::string folder = fs::path(flags.required("output") + "/").parent_path().string();
  const auto trials = trials_of(flags, folder);
  const int cores = std::max(processors(), 1);
  const int jobs = int(std::min<std::int64_t>(
      flags.given("jobs") ? flags.integer("jobs", 1, kMostJobs) : cores, std::ssize(trials)));
  check_trials(trials, flags);
  if (flags.on("dry-run")) {
    for (const auto& trial : trials) output.line(trial.folder + ": " + trial.words());
    output.line(fmt::format("{} points of the grid; nothing was run", trials.size()));
    return {{"dry_run", true}, {"trials", listing_of(trials)["trials"]}};
  }
  const FolderLock lock("sweep", folder);
  keep_listing(folder, trials, flags.on("force"));
  const GracefulStop stop;
  const int failed = Workers(trials, flags, output).run(jobs, std::max(cores / jobs, 1));
  if (stop_requested()) throw Interrupted("sweep", ": the same line goes on");
  ordered_json found = ordered_json::array();
  output.line(fmt::format("{:>9}  {:>8}  {:>12}  {}", "accuracy", "loss", "weight bytes", "set"));
  for (const auto& trial : trials) {
    found.push_back(found_of(trial));
    output.line(result_line(trial, found.back()));
  }
  ordered_json result{{"trials", std::move(found)}, {"failed", failed}};
  if (flags.given("report")) write_file(flags.text("report"), json_text(result));
  if (failed > 0)
    throw FailedCheck(
        fmt::format("[sweep] {} of {} points failed: the same line tries them again", failed, trials.size()),
        result);
  return result;
}

}  // namespace fq::cli
