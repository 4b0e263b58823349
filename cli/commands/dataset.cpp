#include "fakequant/cli/commands/dataset.h"

#include <algorithm>

#include <fmt/format.h>

#include "fakequant/cli/python_script.h"
#include "fakequant/cli/system/child_process.h"
#include "fakequant/core/error.h"

namespace fq::cli {
namespace {

struct ConversionOptions {
  std::string python;
  bool help = false;
};

/// The flags that completions and manual pages list. fakequant.data checks all arguments and prints the help.
template <const char* Name>
FlagSet conversion_flags(ConversionOptions& options) {
  FlagSet set(Name,
              "Makes a data set, in Python. fakequant " + std::string(Name) + " --help lists every flag.",
              "FILE -o FILE [flags]");
  set.group("General")
      .value(options.python, "python", "FILE",
             "a Python 3 with numpy, h5py and the package of this format (default: FAKEQUANT_PYTHON, or "
             "python3)")
      .toggle(options.help, "help,h", "every flag with default and unit");
  return set;
}

template <const char* Name>
Command conversion(std::string_view summary) {
  return {Name, summary, typed(conversion_flags<Name>, nullptr), false, true};
}

constexpr char kImages[] = "dataset from-images", kNpy[] = "dataset from-npy", kIdx[] = "dataset from-idx",
               kCsv[] = "dataset from-csv", kText[] = "dataset from-text",
               kParquet[] = "dataset from-parquet";

std::vector<std::string> needed_modules(std::string_view part, const std::vector<std::string>& arguments) {
  std::vector<std::string> modules{"numpy", "h5py"};
  if (part == kImages) modules.emplace_back("PIL");
  if (part == kParquet) modules.emplace_back("pyarrow");
  const auto has_tokenizer = [](const std::string& word) { return word.starts_with("--tokenizer"); };
  if (std::ranges::any_of(arguments, has_tokenizer)) modules.emplace_back("tokenizers");
  return modules;
}

/// Removes --python FILE from the arguments and returns FILE; empty without it.
std::string take_python(std::vector<std::string>& arguments) {
  const std::string flag = "--python";
  const auto found = std::ranges::find_if(
      arguments, [&](const std::string& word) { return word == flag || word.starts_with(flag + "="); });
  if (found == arguments.end()) return {};
  const bool apart = *found == flag;
  if (apart && found + 1 == arguments.end())
    throw ArgumentError("[dataset] --python: a value is missing. Name a Python.");
  const std::string python = apart ? *(found + 1) : found->substr(flag.size() + 1);
  arguments.erase(found, found + (apart ? 2 : 1));
  return python;
}

}  // namespace

const std::vector<Command>& dataset_commands() {
  static const std::vector<Command> table = {
      conversion<kImages>("make a data set of a folder of images, a folder for each class"),
      conversion<kNpy>("make a data set of NumPy arrays, .npy or .npz"),
      conversion<kIdx>("make a data set of IDX files, the format of MNIST"),
      conversion<kCsv>("make a data set of a table of numbers"),
      conversion<kText>("make a data set of texts, as tokens"),
      conversion<kParquet>("make a data set of a Parquet file: a table, or images"),
      dataset_check_command(),
      dataset_show_command(),
  };
  return table;
}

void add_plain_flags(FlagSet& set, GeneralOptions& options) {
  set.group("General")
      .toggle(options.help, "help,h", "print this text")
      .toggle(options.json, "json", "print one JSON object a line on standard output, for machines");
  if (set.writes()) set.toggle(options.force, "force", "replace files of another kind");
}

void convert_data(const Command& part, const std::vector<std::string>& arguments) {
  auto words = arguments;
  const std::string named = take_python(words), command(part.name);
  words.insert(words.begin(), command.substr(command.find(' ') + 1));
  const std::string python = find_python(named, needed_modules(part.name, arguments));
  try {
    replace_process(module_words(command, python, "fakequant.data", words));
  } catch (const ArgumentError& error) {
    throw ArgumentError(fmt::format("{} by --python or FAKEQUANT_PYTHON", error.what()));
  }
}

}  // namespace fq::cli
