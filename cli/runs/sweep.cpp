#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/limits.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/runs/commands.h"
#include "fakequant/cli/runs/folder_lock.h"
#include "fakequant/cli/runs/sweep/point_summary.h"
#include "fakequant/cli/runs/sweep/trials.h"
#include "fakequant/cli/runs/sweep/workers.h"
#include "fakequant/cli/system/machine.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/io/detail/atomic_file.h"

namespace fq::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int kMostJobs = 1024;

/// Of all points together.
int threads_to_share(const Flags& flags) {
  if (flags.given("threads")) return int(flags.integer("threads", 1, kMostThreads));
  return std::max(std::getenv("OMP_NUM_THREADS") != nullptr ? fq::detail::threads() : processors(), 1);
}

ordered_json found_of(const Trial& trial) {
  ordered_json out{{"set", trial.changes}, {"folder", trial.folder}};
  std::error_code none;
  if (!fs::exists(trial.report(), none)) return out;
  const auto report = read_report(trial.report());
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
      .value("jobs", "COUNT", "points at once, which share --threads (default: as many as those)")
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
  const int threads = threads_to_share(flags);
  const int jobs = int(std::min<std::int64_t>(
      flags.given("jobs") ? flags.integer("jobs", 1, kMostJobs) : threads, std::ssize(trials)));
  const int of_each = std::max(threads / jobs, 1);
  check_trials(trials, flags);
  check_kept(folder, trials, flags);
  if (flags.on("dry-run")) {
    for (const auto& trial : trials) output.line(trial.folder + ": " + trial.words());
    output.line(fmt::format("{} points of the grid; nothing was run", trials.size()));
    return {{"dry_run", true}, {"trials", listing_of(trials)["trials"]}};
  }
  const FolderLock lock("sweep", folder);
  keep_listing(folder, trials, flags);
  const GracefulStop stop;
  output.line(fmt::format("{} points, {} at once on {} thread{} each", trials.size(), jobs, of_each,
                          of_each == 1 ? "" : "s"));
  Workers workers(trials, flags, output);
  const int failed = workers.run(jobs, of_each);
  if (stop_requested())
    throw Interrupted("sweep", fmt::format(": {} of {} points are done; the same line goes on",
                                           workers.done(), trials.size()));
  ordered_json found = ordered_json::array();
  output.line(fmt::format("{:>9}  {:>8}  {:>12}  {}", "accuracy", "loss", "weight bytes", "set"));
  for (const auto& trial : trials) {
    found.push_back(found_of(trial));
    output.line(result_line(trial, found.back()));
  }
  ordered_json result{{"trials", std::move(found)}, {"failed", failed}, {"jobs", jobs}, {"threads", of_each}};
  if (flags.given("report")) write_file(flags.text("report"), json_text(result));
  if (failed > 0)
    throw FailedCheck(
        fmt::format("[sweep] {} of {} points failed: the same line tries them again", failed, trials.size()),
        result);
  return result;
}

}  // namespace fq::cli
