#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/flags/file_checks.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/flags/phase_checks.h"
#include "fakequant/cli/flags/recipe.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/log.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

/// What phases take on this machine, by those that are done.
class Pace {
 public:
  [[nodiscard]] double here(double expected) const {
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

/// What trains says how long it will take once it has measured its steps.
bool tells_its_time(const Phase& phase) { return phase.command == "train" || phase.command == "qat"; }

void announce(const Phase& phase, std::size_t index, std::size_t count, const Pace& pace, Output& output) {
  const double expected = pace.here(phase.expected_seconds);
  std::string text = fmt::format("[{}/{}] {}", index + 1, count, phase.name);
  if (expected > 0 && !tells_its_time(phase)) text += fmt::format(" (about {})", duration(expected));
  output.record(text, {{"event", "phase"}, {"name", phase.name}, {"expected_seconds", expected}});
}

ordered_json run_phase(const Phase& phase, Output& output) {
  const Command& command = find_command(phase.command);
  const Stopwatch watch;
  const auto call = command.call();
  ordered_json result = run_checked(*call, Flags(call->set(), phase.arguments), output);
  const double seconds = watch.seconds();
  output.line(fmt::format("      {} done in {}", phase.name, duration(seconds)));
  return {
      {"name", phase.name}, {"command", phase.command}, {"seconds", seconds}, {"result", std::move(result)}};
}

/// Calls `check` with the call and the flags of every phase. Errors name the phase.
template <class Check>
void for_each_phase(const Recipe& recipe, Check&& check) {
  for (const Phase& phase : recipe.phases) {
    const auto where = [&](const std::exception& error) {
      return fmt::format("{} (phase '{}', before any ran)", error.what(), phase.name);
    };
    try {
      const auto call = find_command(phase.command).call();
      check(*call, Flags(call->set(), phase.arguments));
    } catch (const ArgumentError& error) {
      throw ArgumentError(where(error));
    } catch (const FileError& error) {
      throw FileError(error.path(), error.dataset(), where(error));
    }
  }
}

void check_programs(const Recipe& recipe) {
  for_each_phase(recipe, [](const Invocation&, const Flags& arguments) { check_programs(arguments); });
}

/// What one phase writes may be what a later one reads, but not what all of them come from.
void check_outputs(const Recipe& recipe, const std::string& file) {
  for_each_phase(recipe, [&](const Invocation& call, const Flags& arguments) {
    check_files(call.set(), arguments, {{"recipe", file}});
  });
}

ordered_json dry_run_recipe(const Recipe& recipe, const std::string& file, Output& output) {
  ordered_json phases = ordered_json::array();
  std::size_t place = 0;
  for_each_phase(recipe, [&](const Invocation& call, const Flags& arguments) {
    const auto files = files_to_write(call.set(), arguments, {{"recipe", file}});
    output.line(fmt::format("[{}/{}] {}: would write {}", place + 1, recipe.phases.size(),
                            recipe.phases[place].name,
                            files.empty() ? "nothing" : fmt::format("{}", fmt::join(files, ", "))));
    phases.push_back(
        {{"name", recipe.phases[place].name}, {"command", arguments.command()}, {"writes", files}});
    ++place;
  });
  output.line("all phases fit each other; nothing was written");
  return {{"dry_run", true}, {"phases", phases}};
}

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw FileError(folder, {},
                    fmt::format("[run] {}: {}: give a folder that can be made", folder, error.message()));
}

}  // namespace

void check_recipe(const Recipe& recipe) {
  const QuietLog later;
  PlannedFiles planned;
  for_each_phase(recipe, [&](Invocation& call, const Flags& arguments) {
    check_general_flags(arguments);
    (void)call.plan(arguments, planned);
  });
}

FlagSet run_flags() {
  FlagSet set("run", "Runs the phases of a recipe, one JSON file of model, data and phases.",
              "RECIPE [flags]");
  set.group("Recipe")
      .argument("recipe", "FILE", "the recipe")
      .value("output,o", "FOLDER", "where the files of its phases go (default: the recipe's own)")
      .value("data,d", "FILE", "HDF5 data set (default: the recipe's own)")
      .value("model,m", "FILE|NAME", "model (default: the recipe's own)")
      .value("model-options", "JSON", "options of a built-in model (default: the recipe's own)")
      .value("seed", "NUMBER", "of every phase (default: the recipe's own)")
      .list("set", "PHASE.FLAG=VALUE",
            "flags of phases, in place of the recipe's: train.lr=0.01 of every phase train, or of one by its "
            "name")
      .toggle("resume", "phases that train go on from their output, if it is there")
      .toggle("dry-run", "check all phases, tell what they would write, and write nothing")
      .toggle("verbose", "a line of progress every second where there is no bar")
      .output("report", "FILE", "write the results of all phases there, as JSON", kind::report);
  add_general_flags(set);
  return set;
}

ordered_json run_recipe(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  const Stopwatch watch;
  const Recipe recipe = read_recipe(flags.required("recipe"), flags);
  check_recipe(recipe);
  if (flags.on("dry-run")) return dry_run_recipe(recipe, flags.text("recipe"), output);
  check_programs(recipe);
  make_folder(recipe.folder);
  check_outputs(recipe, flags.text("recipe"));
  ordered_json results = ordered_json::array();
  Pace pace;
  for (std::size_t i = 0; i < recipe.phases.size(); ++i) {
    announce(recipe.phases[i], i, recipe.phases.size(), pace, output);
    results.push_back(run_phase(recipe.phases[i], output));
    pace.done(recipe.phases[i].expected_seconds, results.back().at("seconds"));
  }
  ordered_json report{{"phases", std::move(results)}, {"seconds", watch.seconds()}};
  if (flags.given("report")) write_file(flags.text("report"), json_text(report));
  output.line(fmt::format("all phases done in {}", duration(watch.seconds())));
  return report;
}

}  // namespace fq::cli
