#include "fakequant/cli/command.h"

#include <nlohmann/json.hpp>

#include "fakequant/cli/flags/command_files.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/removed.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/system/streams.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"

namespace fq::cli {
namespace {

/// Prints the plan of a call. Throws the errors of the call before its first step.
nlohmann::ordered_json dry_run(Invocation& call, const Flags& flags, Output& output) {
  PlannedFiles planned;
  check_general_flags(flags);
  const Plan plan = call.plan(flags, planned);
  const auto files = files_to_write(call.set(), flags);
  auto steps = nlohmann::ordered_json::array();
  for (const Step& step : plan.steps) {
    output.line(fmt::format("would {}", step.text));
    steps.push_back(step.text);
  }
  for (const auto& file : files) output.line(fmt::format("would write {}", file));
  output.line(
      fmt::format("{}: flags, data, network and files fit each other; nothing was written", flags.command()));
  return {{"dry_run", true}, {"steps", steps}, {"writes", files}};
}

}  // namespace

const std::vector<Command>& commands() {
  // In the order of the help: make a network, quantize it, use it, look at files.
  static const std::vector<Command> table = {
      train_command(),
      import_command(),
      fold_command(),
      calibrate_command(),
      sensitivity_command(),
      qat_command(),
      evaluate_command(),
      predict_command(),
      generate_command(),
      compress_command(),
      export_command(),
      verify_command(),
      inspect_command(),
      {"dataset", "make a data set of images, arrays, tables or text, check it and show it", nullptr, false,
       false, dataset_commands},
      compare_command(),
      doctor_command(),
      run_command(),
  };
  return table;
}

// The steps refer to the options of this call, which must therefore outlive the plan. Outside of a recipe no
// earlier phase has planned files, so all inputs must exist.
nlohmann::ordered_json Invocation::run(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  PlannedFiles none;
  return execute(plan(flags, none), output);
}

nlohmann::ordered_json execute(const Plan& plan, Output& output) {
  auto result = nlohmann::ordered_json::object();
  for (const Step& step : plan.steps) step.run(output, result);
  return result;
}

nlohmann::ordered_json run_checked(Invocation& call, const Flags& flags, Output& output) {
  call.set().assign(flags);
  // `run` has its own dry run, which plans every phase of the recipe.
  if (flags.on("dry-run") && flags.command() != "run") return dry_run(call, flags, output);
  const auto folders = check_files(call.set(), flags);
  try {
    auto result = call.run(flags, output);
    end_transcript();
    return result;
  } catch (const std::exception& error) {
    // log.txt of a run directory also gets the error. Folders that were created for outputs are removed,
    // unless another process uses them.
    note_line(error.what());
    end_transcript();
    if (dynamic_cast<const FolderTaken*>(&error) == nullptr) remove_empty(folders);
    throw;
  }
}

const Command& find_command(std::string_view name) {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == name) return command;
    names.emplace_back(command.name);
  }
  const std::string removed = removed_command(name);
  FQ_CHECK(removed.empty(), "fakequant", "{}", removed);
  FQ_CHECK(false, "fakequant", "unknown command '{}'{}", name, detail::did_you_mean(name, names));
  return commands().front();
}

const Command& find_part(const Command& command, const std::string& word) {
  std::vector<std::string> names;
  for (const Command& part : command.parts()) {
    names.emplace_back(part.name.substr(command.name.size() + 1));
    if (names.back() == word) return part;
  }
  FQ_CHECK(false, command.name, "unknown command '{} {}'{}", command.name, word,
           detail::did_you_mean(word, names));
  return command;
}

Interrupted::Interrupted(std::string_view command, std::string_view rest)
    : std::runtime_error(fmt::format("[{}] stopped by {}{}", command, stop_name(), rest)) {}

FailedCheck::FailedCheck(const std::string& message, nlohmann::ordered_json result)
    : std::runtime_error(message),
      result_(std::make_shared<const nlohmann::ordered_json>(std::move(result))) {}

}  // namespace fq::cli
