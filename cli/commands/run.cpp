#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/flags/command_files.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/flags/recipe.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/log.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

/// Estimates phase durations on this machine from the completed phases.
class Pace {
 public:
  [[nodiscard]] double here(double expected) const {
    // The ratio of all completed phases corrects the expectation of the next one for this machine.
    return expected_ > 0 ? expected * taken_ / expected_ : expected;
  }
  void done(double expected, double seconds) {
    if (expected <= 0) return;
    expected_ += expected;
    taken_ += seconds;
  }

 private:
  double expected_ = 0, taken_ = 0;
};

/// Returns true for training phases. They print their own estimate after measuring some steps.
bool prints_remaining_time(const Phase& phase) { return phase.command == "train" || phase.command == "qat"; }

void announce(const Phase& phase, std::size_t index, std::size_t count, const Pace& pace, Output& output) {
  const double expected = pace.here(phase.expected_seconds);
  std::string text = fmt::format("[{}/{}] {}", index + 1, count, phase.name);
  if (expected > 0 && !prints_remaining_time(phase)) text += fmt::format(" (about {})", duration(expected));
  output.record(text, {{"event", "phase"}, {"name", phase.name}, {"expected_seconds", expected}});
}

/// Runs phases and measures their durations.
class PhaseRunner {
 public:
  explicit PhaseRunner(Recipe recipe) : recipe_(std::move(recipe)) {}

  ordered_json run(std::size_t index, Output& output) {
    const Phase& phase = recipe_.phases[index];
    announce(phase, index, recipe_.phases.size(), pace_, output);
    const auto call = find_command(phase.command).call();
    const Stopwatch watch;
    // The phase is planned once more here, with the files that earlier phases have written by now.
    ordered_json result = run_checked(*call, Flags(call->set(), phase.arguments), output);
    const double seconds = watch.seconds();
    output.line(fmt::format("      {} done in {}", phase.name, duration(seconds)));
    pace_.done(phase.expected_seconds, seconds);
    return {{"name", phase.name},
            {"command", phase.command},
            {"seconds", seconds},
            {"result", std::move(result)}};
  }

 private:
  Recipe recipe_;
  Pace pace_;
};

/// Calls `check`. Errors name the phase.
template <class Check>
void naming_phase(const Phase& phase, Check&& check) {
  const auto where = [&](const std::exception& error) {
    return fmt::format("{} (phase '{}', before any ran)", error.what(), phase.name);
  };
  try {
    check();
  } catch (const ArgumentError& error) {
    throw ArgumentError(where(error));
  } catch (const FileError& error) {
    throw FileError(error.path(), error.dataset(), where(error));
  }
}

/// Calls `check` with the call and the flags of every phase. Errors name the phase.
template <class Check>
void visit_phases(const Recipe& recipe, Check&& check) {
  for (const Phase& phase : recipe.phases)
    naming_phase(phase, [&] {
      // Every check uses a new call: options of one phase must not reach the next.
      const auto call = find_command(phase.command).call();
      const Flags flags(call->set(), phase.arguments);
      call->set().assign(flags);
      check(*call, flags);
    });
}

/// Checks the outputs of all phases. A later phase may read them, but the recipe file itself is protected.
void check_outputs(const Recipe& recipe, const std::string& file) {
  visit_phases(recipe, [&](const Invocation& call, const Flags& arguments) {
    check_files(call.set(), arguments, {{"recipe", file}});
  });
}

ordered_json dry_run_recipe(const Recipe& recipe, const std::string& file, Output& output) {
  ordered_json phases = ordered_json::array();
  std::size_t index = 0;
  visit_phases(recipe, [&](const Invocation& call, const Flags& arguments) {
    const auto files = files_to_write(call.set(), arguments, {{"recipe", file}});
    output.line(fmt::format("[{}/{}] {}: would write {}", index + 1, recipe.phases.size(),
                            recipe.phases[index].name,
                            files.empty() ? "nothing" : fmt::format("{}", fmt::join(files, ", "))));
    phases.push_back(
        {{"name", recipe.phases[index].name}, {"command", arguments.command()}, {"writes", files}});
    ++index;
  });
  output.line("all phases fit each other; nothing was written");
  return {{"dry_run", true}, {"phases", phases}};
}

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw FileError(folder, {},
                    fmt::format("[run] {}: {}: use a folder that can be made", folder, error.message()));
}

/// Plans every phase with the planned files of earlier phases. Returns the checks of programs. Leaves
/// warnings to the run.
std::vector<std::function<void()>> plan_phases(const Recipe& recipe) {
  // Each phase logs its warnings when it runs.
  const QuietLog later;
  PlannedFiles planned;
  std::vector<std::function<void()>> programs;
  auto phase = recipe.phases.begin();
  visit_phases(recipe, [&](Invocation& call, const Flags& arguments) {
    check_general_flags(arguments);
    for (const auto& check : call.plan(arguments, planned).program_checks)
      programs.emplace_back([phase = *phase, check] { naming_phase(phase, check); });
    ++phase;
  });
  return programs;
}

struct RunOptions {
  std::string recipe, output, data, model, model_options, seed, report;
  std::vector<std::string> changes;
  bool resume = false, dry_run = false, verbose = false;
  GeneralOptions general;
};

FlagSet run_flags(RunOptions& options) {
  FlagSet set("run", "Runs the phases of a recipe, one JSON file of model, data and phases.",
              "RECIPE [flags]");
  set.group("Recipe")
      .argument(options.recipe, "recipe", "FILE", "the recipe")
      .required()
      .value(options.output, "output,o", "FOLDER", "folder of the phases' files (default: the recipe's own)")
      .value(options.data, "data,d", "FILE", "HDF5 data set (default: the recipe's own)")
      .value(options.model, "model,m", "FILE|NAME", "model (default: the recipe's own)")
      .value(options.model_options, "model-options", "JSON",
             "options of a built-in model (default: the recipe's own)")
      .value(options.seed, "seed", "NUMBER", "seed of every phase (default: the recipe's own)")
      .list(options.changes, "set", "PHASE.FLAG=VALUE",
            "flags of phases, instead of the recipe's: train.lr=0.01 for every phase train, or for one by "
            "its name")
      .toggle(options.resume, "resume", "phases that train continue from their output, if it is there")
      .toggle(options.dry_run, "dry-run", "check all phases and print their outputs; write nothing")
      .toggle(options.verbose, "verbose", "a line of progress every second where there is no bar")
      .output(options.report, "report", "FILE", "write the results of all phases there, as JSON",
              kind::report);
  add_general_flags(set, options.general);
  return set;
}

void finish(const std::string& report, double seconds, Output& output, ordered_json& result) {
  result["seconds"] = seconds;
  if (!report.empty()) write_file(report, json_text(result));
  output.line(fmt::format("all phases done in {}", duration(seconds)));
}

/// Reads the recipe by the names of flags, which are keys in the recipe.
class RecipeInvocation : public Invocation {
 public:
  [[nodiscard]] const FlagSet& set() const override { return set_; }

  // Plans all phases before the first one runs, so that an error in a late phase costs no training. `watch`
  // starts here, and the report has the time of the planning too.
  [[nodiscard]] Plan plan(const Flags& flags, PlannedFiles&) override {
    const Stopwatch watch;
    recipe_ = read_recipe(options_.recipe, flags);
    Plan plan;
    plan.program_checks = plan_phases(recipe_);
    const auto runner = std::make_shared<PhaseRunner>(recipe_);
    for (std::size_t i = 0; i < recipe_.phases.size(); ++i)
      plan.add(recipe_.phases[i].name, [runner, i](Output& output, ordered_json& result) {
        result["phases"].push_back(runner->run(i, output));
      });
    plan.add("report", [watch, report = options_.report](Output& output, ordered_json& result) {
      finish(report, watch.seconds(), output, result);
    });
    return plan;
  }

  // Cheap checks first. Folders are created only if every phase is valid.
  ordered_json run(const Flags& flags, Output& output) override {
    apply_general_flags(flags);
    PlannedFiles none;
    const Plan planned = plan(flags, none);
    if (options_.dry_run) return dry_run_recipe(recipe_, options_.recipe, output);
    for (const auto& check : planned.program_checks) check();
    make_folder(recipe_.folder);
    check_outputs(recipe_, options_.recipe);
    return execute(planned, output);
  }

 private:
  RunOptions options_ = {};
  FlagSet set_ = run_flags(options_);
  Recipe recipe_ = {};
};

}  // namespace

Command run_command() {
  return {"run", "run the phases of a recipe", [] { return std::make_unique<RecipeInvocation>(); }};
}

}  // namespace fq::cli
