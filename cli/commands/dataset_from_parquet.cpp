#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "fakequant/cli/commands/dataset.h"
#include "fakequant/cli/flags/conversion_flags.h"
#include "fakequant/cli/python_script.h"
#include "fakequant/cli/system/signals.h"
#include "fakequant/cli/system/temporary_folder.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/file_kind.h"

namespace fq::cli {
namespace {

using nlohmann::json;

constexpr const char* kCommand = "dataset from-parquet";

/// A file as what another command reads.
struct Unpacked {
  std::string path;  ///< a table, or a folder of images
  std::vector<std::string> classes;
};

bool of_images(const Flags& flags) { return flags.given("image"); }

void check_parquet(const std::string& path) {
  const std::string kind = fq::detail::file_kind(path);
  if (kind != "a Parquet file")
    throw FileError(path, "",
                    fmt::format("[{}] {} is {}, not a Parquet file", kCommand, path,
                                kind.empty() ? "something else" : kind));
}

json report_of(const std::string& path) {
  std::ifstream file(path);
  const json report = json::parse(file, nullptr, false);
  const bool whole = report.is_object() && report.value("rows", json()).is_number() &&
                     report.value("classes", json()).is_array();
  if (!whole) throw BackendError(fmt::format("[{}] the Python that reads the file left no report", kCommand));
  return report;
}

Unpacked unpack(const Flags& flags, const std::string& path, const std::string& to,
                const TemporaryFolder& folder) {
  check_parquet(path);
  const std::string report = folder.file("report.json");
  std::vector<std::string> words{python_of(flags), script_path(kCommand, "read_parquet.py"),
                                 "--report=" + report};
  const bool labels = flags.choice("task", {"classes", "real", "none"}) != "none";
  for (const char* name : {"label", "image", "columns", "drop"})
    if (flags.given(name) && (labels || std::string_view(name) != "label"))
      words.push_back(fmt::format("--{}={}", name, flags.text(name)));
  words.insert(words.end(), {"--", path, to});
  static_cast<void>(run_python(flags, words, {folder.file("output"), folder.file("errors")}, path));
  const json found = report_of(report);
  FQ_CHECK(found.at("rows") > 0, kCommand, "{} has no rows", path);
  return {to, found.at("classes").get<std::vector<std::string>>()};
}

/// The flags that were given, for another command, with the words that take the place of others.
Flags handed_on(const Flags& flags, const FlagSet& set, std::vector<std::string> words,
                const std::vector<std::string>& others) {
  for (const auto& name : set.names()) {
    const bool own = std::ranges::find(others, name) != others.end();
    if (own || !flags.knows(name) || !flags.given(name)) continue;
    words.push_back(set.is_toggle(name) ? "--" + name : fmt::format("--{}={}", name, flags.text(name)));
  }
  return {set, words};
}

void add_classes(const Flags& flags, const Unpacked& data, std::vector<std::string>& words) {
  if (!data.classes.empty() && flags.text("classes").empty() && flags.text("like").empty())
    words.push_back(fmt::format("--classes={}", fmt::join(data.classes, ",")));
}

nlohmann::ordered_json images_of(const Flags& flags, const TemporaryFolder& folder, Output& output) {
  const std::string root = folder.file("images");
  const std::string train = flags.given("test-file") ? root + "/train" : root;
  std::filesystem::create_directories(train);
  const Unpacked data = unpack(flags, flags.required("file"), train, folder);
  if (flags.given("test-file"))
    static_cast<void>(unpack(flags, flags.text("test-file"), root + "/test", folder));
  std::vector<std::string> words{root};
  add_classes(flags, data, words);
  return from_images(handed_on(flags, from_images_flags(), words, {"folder"}), output);
}

nlohmann::ordered_json table_of(const Flags& flags, const TemporaryFolder& folder, Output& output) {
  const Unpacked data = unpack(flags, flags.required("file"), folder.file("table.csv"), folder);
  std::vector<std::string> words{data.path, "--header=yes", "--delimiter=,"};
  if (flags.given("test-file"))
    words.push_back("--test-file=" +
                    unpack(flags, flags.text("test-file"), folder.file("test.csv"), folder).path);
  add_classes(flags, data, words);
  return from_csv(handed_on(flags, from_csv_flags(), words, {"file", "test-file", "columns", "drop"}),
                  output);
}

/// What the other command says, of this one and its file.
std::string in_own_words(std::string text, const Flags& flags, const TemporaryFolder& folder) {
  const std::pair<std::string, std::string> words[] = {
      {"[dataset from-csv]", fmt::format("[{}]", kCommand)},
      {"[dataset from-images]", fmt::format("[{}]", kCommand)},
      {folder.file("table.csv"), flags.text("file")},
      {folder.file("test.csv"), flags.text("test-file")},
      {folder.file("images"), flags.text("file")}};
  for (const auto& [theirs, own] : words)
    for (auto at = text.find(theirs); at != text.npos; at = text.find(theirs, at + own.size()))
      text.replace(at, theirs.size(), own);
  return text;
}

}  // namespace

FlagSet from_parquet_flags() {
  FlagSet set(
      kCommand,
      "Makes a data set of a Parquet file: of its columns of numbers and texts, or of a column of images. A "
      "Python with pyarrow reads it.",
      "FILE --label COLUMN -o FILE [flags]");
  set.group("Table")
      .argument("file", "FILE", "a Parquet file")
      .value("label", "COLUMN", "the column of labels, by its name")
      .value("task", "NAME", "what labels are: classes (numbers or text), real (numbers), none", "classes")
      .value("test-file", "FILE", "a file of the same columns for the group test, in place of a share")
      .value("columns", "LIST", "the only columns to take (default: all but the label)")
      .value("drop", "LIST", "columns to leave out")
      .value("one-hot", "LIST", "columns of text: a number, 0 or 1, for each text in them")
      .value("missing", "NAME",
             "a row without a value is an error, is left out (skip), or gets the column's mean (mean)",
             "error")
      .toggle(
          "keep-values",
          "the network sees the numbers as they are, not less the mean, by the deviation, of their column "
          "over the training rows");
  set.group("Images")
      .value("image", "COLUMN", "a column of images in place of a table: bytes, or {bytes, path}")
      .value("size", "PIXELS", "of all images: 32, or width and height, 64x48")
      .value("fit", "NAME", "images of another shape: crop, pad or stretch, as from-images", "crop")
      .value("resize", "PIXELS", "of the shorter side, before the middle of --size is taken")
      .value("channels", "NUMBER", "1: grey, 3: colour, auto: 1 if all images are grey", "auto")
      .toggle("strict", "an image that cannot be read is an error, not left out");
  set.group("Python").value("python", "FILE",
                            "a Python 3 with pyarrow (default: FAKEQUANT_PYTHON, or python3)");
  add_conversion_flags(set, false);
  add_plain_flags(set);
  return set;
}

nlohmann::ordered_json from_parquet(const Flags& flags, Output& output) {
  for (const char* name : {"columns", "drop", "one-hot", "keep-values"})
    FQ_CHECK(!of_images(flags) || !flags.given(name), kCommand, "--{} is of a table: leave it or --image out",
             name);
  for (const char* name : {"size", "resize", "strict"})
    FQ_CHECK(of_images(flags) || !flags.given(name), kCommand, "--{} is of images: give --image COLUMN too",
             name);
  static_cast<void>(flags.required("output"));
  const GracefulStop stop;
  const TemporaryFolder folder;
  try {
    return of_images(flags) ? images_of(flags, folder, output) : table_of(flags, folder, output);
  } catch (const ArgumentError& error) {
    throw ArgumentError(in_own_words(error.what(), flags, folder));
  } catch (const FileError& error) {
    throw FileError(flags.text("file"), error.dataset(), in_own_words(error.what(), flags, folder));
  }
}

}  // namespace fq::cli
