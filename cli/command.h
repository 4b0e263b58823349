#pragma once

/// The commands, their plans and their execution.

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/cli/data.h"
#include "fakequant/cli/flags/command_files.h"
#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/system/process.h"
#include "fakequant/cli/tables/output.h"

namespace fq::cli {

/// One step of a command.
struct Step {
  std::string text;  ///< for people, in the infinitive: "fold batch normalisation"
  /// Prints for people, and adds to `result` for machines. Throws on failure.
  std::function<void(Output& output, nlohmann::ordered_json& result)> run;
};

struct Plan {
  std::vector<std::string> inputs = {};   ///< files that are read
  std::vector<std::string> outputs = {};  ///< files that are written
  std::vector<Step> steps = {};
  /// Check programs that the steps need, and throw if one is missing. A recipe calls them before its first
  /// phase. A dry run does not call them.
  std::vector<std::function<void()>> program_checks = {};

  void add(std::string text, decltype(Step::run) run) { steps.push_back({std::move(text), std::move(run)}); }
};

/// Runs the steps in their order. Returns the result for machines.
nlohmann::ordered_json execute(const Plan& plan, Output& output);

/// One call of a command: its flags, and after parsing its plan.
class Invocation {
 public:
  virtual ~Invocation() = default;
  [[nodiscard]] virtual const FlagSet& set() const = 0;
  /// Checks files, networks and data, and returns the steps of the command. Requires a call of
  /// `set().assign(flags)` before. Adds the files of this command to `planned`, which has the files of
  /// earlier phases of a recipe. Writes and prints nothing.
  [[nodiscard]] virtual Plan plan(const Flags& flags, PlannedFiles& planned) = 0;
  /// Sets the number of threads, executes the plan and returns the result for machines.
  virtual nlohmann::ordered_json run(const Flags& flags, Output& output);
};

/// One command.
struct Command {
  std::string_view name;
  std::string_view summary;
  /// Makes a call with the default options. Null for a command of several parts.
  std::function<std::unique_ptr<Invocation>()> call;
  bool is_phase = false;   ///< allowed in a recipe
  bool in_python = false;  ///< run by a Python module (convert_data)
  /// Commands of two words that begin with this one, by both words.
  const std::vector<Command>& (*parts)() = nullptr;
};

/// A call of a command with an option struct: `flags` binds the members, `plan` reads them.
template <class Options>
class TypedInvocation : public Invocation {
 public:
  using MakePlan = Plan (*)(const Options& options, PlannedFiles& planned);

  TypedInvocation(FlagSet (*flags)(Options& options), MakePlan make_plan)
      : set_(flags(options_)), make_plan_(make_plan) {}
  [[nodiscard]] const FlagSet& set() const override { return set_; }
  [[nodiscard]] Plan plan(const Flags&, PlannedFiles& planned) override {
    return make_plan_(options_, planned);
  }

 private:
  Options options_ = {};
  FlagSet set_;
  MakePlan make_plan_;
};

template <class Options>
[[nodiscard]] std::function<std::unique_ptr<Invocation>()> typed(
    FlagSet (*flags)(Options& options), typename TypedInvocation<Options>::MakePlan plan) {
  return [=] { return std::make_unique<TypedInvocation<Options>>(flags, plan); };
}

/// Checks the files of a call (command_files.h) and runs it, or prints its plan with --dry-run. All calls
/// run through this function.
nlohmann::ordered_json run_checked(Invocation& call, const Flags& flags, Output& output);

/// Returns the commands in the order of the help.
[[nodiscard]] const std::vector<Command>& commands();
/// Returns a command by name. Throws ArgumentError naming the nearest.
[[nodiscard]] const Command& find_command(std::string_view name);
/// Returns the part of `command` whose second word is `word`. Throws ArgumentError naming the nearest.
[[nodiscard]] const Command& find_part(const Command& command, const std::string& word);

/// Thrown by a command that stopped because of a signal (process.h). The exit status is 128 + signal number,
/// or 130 after Ctrl-C.
class Interrupted : public std::runtime_error {
 public:
  /// Builds "[train] stopped by SIGTERM in epoch 3". `rest` is the text after the signal.
  explicit Interrupted(std::string_view command, std::string_view rest = {});
};

/// Thrown after a command printed the result of a failed check. The exit status is 1.
class FailedCheck : public std::runtime_error {
 public:
  FailedCheck(const std::string& message, nlohmann::ordered_json result);

  [[nodiscard]] const nlohmann::ordered_json& result() const noexcept { return *result_; }

 private:
  std::shared_ptr<const nlohmann::ordered_json> result_;
};

Command train_command();
Command import_command();
Command fold_command();
Command calibrate_command();
Command sensitivity_command();
Command qat_command();
Command evaluate_command();
Command predict_command();
Command generate_command();
Command compress_command();
Command export_command();
Command verify_command();
Command inspect_command();
const std::vector<Command>& dataset_commands();
/// Runs a part of `in_python`, a conversion: replaces this process by the Python module fakequant.data with
/// `arguments`. Throws ArgumentError if Python cannot be started.
[[noreturn]] void convert_data(const Command& part, const std::vector<std::string>& arguments);
Command compare_command();
Command doctor_command();
Command run_command();

}  // namespace fq::cli
