#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/augmentation.h"
#include "fakequant/cli/command.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/system/programs.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/report/detail/contact_sheet.h"
#include "fakequant/train/data/detail/checks/data_checks.h"

namespace fq::cli {
namespace {

/// Adds help, json and force: the general flags of commands without computation.
/// Commands on files alone have no device, threads or run directory.
void add_plain_flags(FlagSet& set, GeneralOptions& options) {
  set.group("General")
      .toggle(options.help, "help,h", "print this text")
      .toggle(options.json, "json", "print one JSON object a line on standard output, for machines");
  if (set.writes()) set.toggle(options.force, "force", "replace files of another kind");
}

using fq::detail::Verdict;
using nlohmann::ordered_json;

void print(const fq::detail::Finding& finding, Output& output) {
  output.line(fmt::format("{:<5} {:<6} {:<10} {}", name(finding.verdict), finding.group, finding.about,
                          finding.text));
}

struct CheckDataOptions {
  std::string file;
  bool strict = false;
  GeneralOptions general;
};

FlagSet check_data_flags(CheckDataOptions& options) {
  FlagSet set("dataset check",
              "Reads a data set and prints its content and possible errors: shapes, values, labels, "
              "balance and duplicates. Exit status 1 if something is wrong.",
              "FILE [flags]");
  set.group("Data set")
      .argument(options.file, "file", "FILE", "the data set")
      .required()
      .toggle(options.strict, "strict", "a doubt is an error, too");
  add_plain_flags(set, options.general);
  return set;
}

// Prints all findings before it fails, so that one run shows every problem.
void check_data(const CheckDataOptions& options, Output& output, ordered_json& result) {
  const auto stop = [](std::int64_t) {
    if (stop_requested()) throw Interrupted("dataset check");
  };
  ordered_json list = ordered_json::array();
  std::int64_t wrong = 0, doubts = 0;
  for (const auto& finding : fq::detail::check_data_set(options.file, stop)) {
    print(finding, output);
    // Doubts are possible errors, for example duplicates. --strict counts them as errors.
    wrong += finding.verdict == Verdict::wrong ? 1 : 0;
    doubts += finding.verdict == Verdict::doubt ? 1 : 0;
    list.push_back({{"verdict", name(finding.verdict)},
                    {"group", finding.group},
                    {"about", finding.about},
                    {"text", finding.text}});
  }
  const std::string counts = fmt::format("{}: {} wrong, {} doubted", options.file, wrong, doubts);
  output.line(counts);
  result = {{"file", options.file}, {"wrong", wrong}, {"doubted", doubts}, {"findings", std::move(list)}};
  if (wrong > 0 || (options.strict && doubts > 0)) throw FailedCheck("[dataset check] " + counts, result);
}

Plan plan_check_data(const CheckDataOptions& options, PlannedFiles&) {
  Plan plan;
  plan.add("check " + options.file,
           [&options](Output& output, ordered_json& result) { check_data(options, output, result); });
  return plan;
}

Command dataset_check_command() {
  return {"dataset check", "print the content of a data set, and possible errors",
          typed(check_data_flags, plan_check_data)};
}

struct ShowDataOptions {
  std::string file, split = "train", output, html;
  std::int64_t samples = 100, seed = 0;
  std::optional<std::string> augment;
  GeneralOptions general;
};

FlagSet show_data_flags(ShowDataOptions& options) {
  FlagSet set("dataset show", "Shows samples of each class: images as one picture, any data as a page.",
              "FILE [-o FILE] [--html FILE] [flags]");
  set.group("Data set")
      .argument(options.file, "file", "FILE", "the data set")
      .required()
      .value(options.split, "split", "GROUP", "the group to look at")
      .value(options.samples, "samples", "SAMPLES", {1, 1 << 16},
             "number of samples, divided equally between the classes")
      .value(options.augment, "augment", "LIST",
             "show the samples as training with this --augment would see them")
      .value(options.seed, "seed", "NUMBER", {0, std::int64_t{1} << 40}, "seed of the augmentation")
      .need({"seed"}, "augment")
      .output(options.output, "output,o", "FILE", "a picture (PNG) of images", kind::contact_sheet)
      .output(options.html, "html", "FILE", "a page", kind::page);
  add_plain_flags(set, options.general);
  return set;
}

std::string contact_page(const ShowDataOptions& options, const ShownData& data) {
  std::vector<std::pair<std::string, std::string>> facts{
      {"group", options.split}, {"samples", std::to_string(data.rows)}, {"of", data.kind}};
  if (!data.classes.front().name.empty()) facts.emplace_back("classes", std::to_string(data.classes.size()));
  return contact_sheet_html("Samples of " + options.file, facts, data);
}

ordered_json shown_classes(const ShownData& data) {
  ordered_json classes = ordered_json::array();
  for (const auto& of : data.classes) {
    std::vector<std::int64_t> rows;
    for (const auto& sample : of.samples) rows.push_back(sample.row);
    classes.push_back({{"name", of.name}, {"count", of.count}, {"rows", rows}});
  }
  return classes;
}

void show_data(const ShowDataOptions& options, const std::optional<ShownChange>& change, Output& output,
               ordered_json& result) {
  const auto data =
      naming_flags([&] { return samples_to_show(options.file, options.split, options.samples, change); });
  // Both files are made in memory first: an error leaves neither of them half written.
  const std::string picture = options.output.empty() ? std::string() : contact_sheet_png(data);
  const std::string page = options.html.empty() ? std::string() : contact_page(options, data);
  result["file"] = options.file;
  const auto write = [&](const char* key, const std::string& path, const std::string& content) {
    result[key] = path.empty() ? ordered_json(nullptr) : ordered_json(path);
    if (path.empty()) return;
    write_file(path, content);
    output.line("written to " + path);
  };
  write("output", options.output, picture);
  write("html", options.html, page);
  result["classes"] = shown_classes(data);
}

Plan plan_show_data(const ShowDataOptions& options, PlannedFiles&) {
  FQ_CHECK(!options.output.empty() || !options.html.empty(), "dataset show",
           "nothing is to be written: use -o sheet.png or --html page.html");
  std::optional<ShownChange> change;
  if (options.augment)
    change = {.options = read_augment(*options.augment, "dataset show"), .seed = std::uint64_t(options.seed)};
  Plan plan;
  plan.add(fmt::format("show {} samples of the group {} of {}", options.samples, options.split, options.file),
           [&options, change](Output& output, ordered_json& result) {
             show_data(options, change, output, result);
           });
  return plan;
}

Command dataset_show_command() {
  return {"dataset show", "a page or a picture of samples of each class",
          typed(show_data_flags, plan_show_data)};
}

struct ConversionOptions {
  std::string python;
  bool help = false;
};

/// The flags that completions and manual pages list. fakequant.data checks all arguments and prints the help.
/// Two flags are enough here: the Python module parses the arguments, and its own help has the others.
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

// Arrays with linkage, because they are template arguments.
constexpr char kImages[] = "dataset from-images", kNpy[] = "dataset from-npy", kIdx[] = "dataset from-idx",
               kCsv[] = "dataset from-csv", kText[] = "dataset from-text",
               kParquet[] = "dataset from-parquet";

// Returns the modules that the conversion imports. `find_python` chooses a Python that has them.
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
  // "--python FILE" or "--python=FILE".
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

void convert_data(const Command& part, const std::vector<std::string>& arguments) {
  // The process is replaced instead of started as a child: progress, Ctrl-C and exit status need no
  // forwarding.
  auto forwarded = arguments;
  const std::string named = take_python(forwarded), command(part.name);
  forwarded.insert(forwarded.begin(), command.substr(command.find(' ') + 1));
  const std::string python = find_python(named, needed_modules(part.name, arguments));
  try {
    replace_process(module_words(command, python, "fakequant.data", forwarded));
  } catch (const ArgumentError& error) {
    throw ArgumentError(fmt::format("{} by --python or FAKEQUANT_PYTHON", error.what()));
  }
}

}  // namespace fq::cli
