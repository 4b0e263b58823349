#pragma once

/// The commands, their plans, and how a command is run.

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
  std::string text;  ///< for a person, in the infinitive: "fold batch normalisation"
  /// Prints for people, and adds to `result` for machines. Throws on failure.
  std::function<void(Output& output, nlohmann::ordered_json& result)> run;
};

struct Plan {
  std::vector<std::string> inputs = {};   ///< files that are read
  std::vector<std::string> outputs = {};  ///< files that are written
  std::vector<Step> steps = {};
  /// Starts programs that steps will need, and throws if one is missing. A recipe calls them before its first
  /// phase. Not part of a dry run.
  std::vector<std::function<void()>> program_checks = {};

  void add(std::string text, decltype(Step::run) run) { steps.push_back({std::move(text), std::move(run)}); }
};

/// Runs the steps in their order. Returns the result for machines.
nlohmann::ordered_json execute(const Plan& plan, Output& output);

/// One call of a command: its flags, and its plan once the flags are parsed.
class Invocation {
 public:
  virtual ~Invocation() = default;
  [[nodiscard]] virtual const FlagSet& set() const = 0;
  /// Checks files, networks and data, and returns what the command will do. `set().assign(flags)` has to be
  /// called before. `planned` holds the files that earlier phases of a recipe will write, and takes those of
  /// this command. Writes and prints nothing.
  [[nodiscard]] virtual Plan plan(const Flags& flags, PlannedFiles& planned) = 0;
  /// Sets the number of threads, executes the plan and returns the result for machines.
  virtual nlohmann::ordered_json run(const Flags& flags, Output& output);
};

/// One command.
struct Command {
  std::string_view name;
  std::string_view summary;
  /// Makes a call with the default options. Null for a command that has parts.
  std::function<std::unique_ptr<Invocation>()> call;
  bool is_phase = false;   ///< whether a recipe may contain it
  bool in_python = false;  ///< whether a module of Python runs it (convert_data)
  /// The commands of two words that begin with this one, named by both words.
  const std::vector<Command>& (*parts)() = nullptr;
};

/// A command of an option struct: `flags` binds the members, `plan` reads them.
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

/// Runs a call after a check of its files (command_files.h), or with --dry-run prints its plan. All calls are
/// run by this function.
nlohmann::ordered_json run_checked(Invocation& call, const Flags& flags, Output& output);

/// In the order of the help.
[[nodiscard]] const std::vector<Command>& commands();
/// Throws ArgumentError naming the nearest.
[[nodiscard]] const Command& find_command(std::string_view name);
/// The one of `parts` whose second word that is. Throws likewise.
[[nodiscard]] const Command& find_part(const Command& command, const std::string& word);

/// Thrown by a command that stopped because of a signal (process.h); exit status 128 + its number, 130 after
/// Ctrl-C.
class Interrupted : public std::runtime_error {
 public:
  /// "[train] stopped by SIGTERM in epoch 3", `rest` being what follows the signal.
  explicit Interrupted(std::string_view command, std::string_view rest = {});
};

/// Thrown by a command whose result is that a check failed: the result is printed first; exit status 1.
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
/// Runs a part of `in_python`, a conversion: replaces this process by the module fakequant.data of Python,
/// with `arguments`. Throws ArgumentError if Python cannot be started.
[[noreturn]] void convert_data(const Command& part, const std::vector<std::string>& arguments);
Command compare_command();
Command doctor_command();
Command run_command();

}  // namespace fq::cli
