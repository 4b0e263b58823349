#include "fakequant/cli/command.h"

#include <nlohmann/json.hpp>

#include "fakequant/cli/flags/file_checks.h"
#include "fakequant/cli/flags/removed.h"
#include "fakequant/cli/runs/dry_run.h"
#include "fakequant/cli/runs/folder_lock.h"
#include "fakequant/cli/runs/transcript.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"

namespace fq::cli {

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"train", "train a network in float", train_flags, train, check_train},
      {"import", "make a checkpoint of an ONNX, GGUF or safetensors file", import_flags, import_model,
       check_import},
      {"fold", "fold batch normalisation into the layers before it", fold_flags, fold, check_fold},
      {"calibrate", "put quantizers into a network and choose their ranges", calibrate_flags, calibrate,
       check_calibrate},
      {"sensitivity", "what quantizing each layer costs, and a format for each", sensitivity_flags,
       measure_sensitivity, check_sensitivity},
      {"qat", "fine-tune a quantized network", qat_flags, qat, check_qat},
      {"evaluate", "accuracy and loss on a data set", evaluate_flags, evaluate, check_evaluate},
      {"predict", "write the outputs, and the codes, for a data set", predict_flags, predict, check_predict},
      {"generate", "print text that a network goes on with", generate_flags, generate_text, nullptr},
      {"compress", "keep the weights as packed codes", compress_flags, compress_weights, check_compress},
      {"export", "write scales, graphs or packed weights for an engine", export_flags, export_network,
       check_export},
      {"verify", "compare an exported network in its engine with its checkpoint", verify_flags, verify,
       check_verify},
      {"inspect", "show what a checkpoint, model or data file holds", inspect_flags, inspect, check_inspect},
      {"dataset", "make a data set of images, arrays, tables or text, check it and show it", nullptr, nullptr,
       nullptr, dataset_commands},
      {"compare", "put run directories beside each other", compare_flags, compare, nullptr},
      {"doctor", "what this machine and this build offer", doctor_flags, doctor, nullptr},
      {"run", "run the phases of a recipe", run_flags, run_recipe, nullptr},
  };
  return table;
}

nlohmann::ordered_json run_checked(const Command& command, const FlagSet& set, const Flags& flags,
                                   Output& output) {
  if (flags.on("dry-run") && command.check != nullptr) return dry_run(command, set, flags, output);
  const auto folders = check_files(set, flags);
  try {
    auto result = command.run(flags, output);
    end_transcript();
    return result;
  } catch (const std::exception& error) {
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
  std::vector<std::string> words;
  for (const Command& part : command.parts()) {
    words.emplace_back(part.name.substr(command.name.size() + 1));
    if (words.back() == word) return part;
  }
  FQ_CHECK(false, command.name, "unknown command '{} {}'{}", command.name, word,
           detail::did_you_mean(word, words));
  return command;
}

Interrupted::Interrupted(std::string_view command, std::string_view rest)
    : std::runtime_error(fmt::format("[{}] stopped by {}{}", command, stop_name(), rest)) {}

FailedCheck::FailedCheck(const std::string& message, nlohmann::ordered_json result)
    : std::runtime_error(message),
      result_(std::make_shared<const nlohmann::ordered_json>(std::move(result))) {}

}  // namespace fq::cli
