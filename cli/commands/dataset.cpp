#include "fakequant/cli/commands/dataset.h"

#include <algorithm>

#include <fmt/format.h>

#include "fakequant/cli/python_script.h"
#include "fakequant/cli/system/child_process.h"
#include "fakequant/core/error.h"

namespace fq::cli {
namespace {

/// The flags that the command itself reads. fakequant.data checks all arguments and prints the help.
template <const char* Name>
FlagSet conversion_flags() {
  FlagSet set(Name,
              "Makes a data set, in Python. fakequant " + std::string(Name) + " --help lists every flag.",
              "FILE -o FILE [flags]");
  set.group("General")
      .value("python", "FILE",
             "a Python 3 with numpy, h5py and the package of this format (default: FAKEQUANT_PYTHON, or "
             "python3)")
      .toggle("help,h", "every flag with default and unit");
  return set;
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
      {kImages, "make a data set of a folder of images, a folder for each class", by_flags(conversion_flags<kImages>, nullptr), false, true},
      {kNpy, "make a data set of NumPy arrays, .npy or .npz", by_flags(conversion_flags<kNpy>, nullptr), false, true},
      {kIdx, "make a data set of IDX files, the format of MNIST", by_flags(conversion_flags<kIdx>, nullptr), false, true},
      {kCsv, "make a data set of a table of numbers", by_flags(conversion_flags<kCsv>, nullptr), false, true},
      {kText, "make a data set of texts, as tokens", by_flags(conversion_flags<kText>, nullptr), false, true},
      {kParquet, "make a data set of a Parquet file: a table, or images", by_flags(conversion_flags<kParquet>, nullptr), false, true},
      {"dataset check", "what a data set holds, and what may be wrong with it", by_flags(check_data_flags, check_data)},
      {"dataset show", "a page or a picture of samples of each class", by_flags(show_data_flags, show_data)},
  };
  return table;
}

void add_plain_flags(FlagSet& set) {
  set.group("General")
      .toggle("help,h", "this text")
      .toggle("json", "one JSON object a line on standard output, for machines");
  if (set.writes()) set.toggle("force", "replace files of another kind than those that are written");
}

void convert_data(const Command& part, const std::vector<std::string>& arguments) {
  auto words = arguments;
  const std::string named = take_python(words), command(part.name);
  words.insert(words.begin(), command.substr(command.find(' ') + 1));
  const std::string python = python_with(named, needed_modules(part.name, arguments));
  try {
    replace_process(module_words(command, python, "fakequant.data", words));
  } catch (const ArgumentError& error) {
    throw ArgumentError(fmt::format("{} by --python or FAKEQUANT_PYTHON", error.what()));
  }
}

}  // namespace fq::cli
