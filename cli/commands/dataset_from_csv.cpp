#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "fakequant/cli/commands/dataset.h"
#include "fakequant/cli/conversion.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/train/data/detail/class_names.h"
#include "fakequant/train/data/reader/csv_source.h"
#include "fakequant/train/data/reader/label_values.h"

namespace fq::cli {
namespace {

using fq::detail::CsvOptions;
using fq::detail::CsvSource;
using fq::detail::Missing;

CsvOptions options_of(const Flags& flags) {
  CsvOptions options;
  options.delimiter = delimiter_of(flags);
  options.header = flags.choice("header", {"auto", "yes", "no"});
  options.columns = fq::detail::split_names(flags.text("columns"));
  options.drop = fq::detail::split_names(flags.text("drop"));
  options.one_hot = fq::detail::split_names(flags.text("one-hot"));
  options.decimal = flags.choice("decimal", {"point", "comma"}) == "comma" ? ',' : '.';
  const std::string missing = flags.choice("missing", {"error", "skip", "mean"});
  options.missing = missing == "skip" ? Missing::skip : missing == "mean" ? Missing::mean : Missing::error;
  options.task = fq::detail::task_of(flags.choice("task", {"classes", "real", "none"}));
  options.class_names = given_class_names(flags);
  if (const auto like = like_of(flags)) options.known = like->columns;
  options.label = flags.text("label");
  if (options.label.empty() && options.task != fq::detail::Task::none)
    FQ_CHECK(false, flags.command(),
             "--label is missing: name the column of labels, which is one of {}, or give --task none",
             fmt::join(csv_columns(flags.required("file"), options), ", "));
  if (options.task == fq::detail::Task::none && !options.label.empty())
    options.drop.push_back(options.label), options.label = "";
  return options;
}

void note_skipped(const CsvSource& table, const std::string& path, std::vector<std::string>& notes) {
  if (table.skipped() > 0)
    notes.push_back(fmt::format("{}: {} records without all values are left out", path, table.skipped()));
}

/// Such as the index that pandas writes.
void note_counting(const fq::detail::CsvSchema& schema, std::vector<std::string>& notes) {
  for (const auto& feature : schema.features)
    if (feature.counts)
      notes.push_back(
          fmt::format("the column '{}' counts the records: leave it out by --drop {}, unless that tells "
                      "something of them",
                      schema.header[feature.column], feature.column));
}

/// What the numbers of a row are: "size", or "colour=red" of a column of text.
std::vector<std::string> columns_of(const fq::detail::CsvSchema& schema) {
  std::vector<std::string> columns;
  for (const auto& feature : schema.features) {
    const std::string& name = schema.header[feature.column];
    for (const auto& category : feature.categories) columns.push_back(name + "=" + category);
    if (feature.categories.empty()) columns.push_back(name);
  }
  return columns;
}

void check_like(const Flags& flags, const std::vector<std::string>& columns) {
  const auto like = like_of(flags);
  if (!like || like->columns.empty() || like->columns == columns) return;
  FQ_CHECK(false, flags.command(),
           "the columns are {}, those of --like {} are {}: choose them by --columns and --drop",
           fmt::join(columns, ", "), flags.text("like"), fmt::join(like->columns, ", "));
}

}  // namespace

FlagSet from_csv_flags() {
  FlagSet set("dataset from-csv",
              "Makes a data set of a table: a row of numbers for each record, and a column of labels.",
              "FILE --label COLUMN -o FILE [flags]");
  set.group("Table")
      .argument("file", "FILE", "a CSV file in UTF-8, also in gzip; fields in quotes may hold anything")
      .value("label", "COLUMN", "the column of labels, by its name, or its place from 0")
      .value("task", "NAME", "what labels are: classes (numbers or text), real (numbers), none", "classes")
      .value("test-file", "FILE", "a table of the same columns for the group test, in place of a share")
      .value("columns", "LIST", "the only columns to take (default: all but the label)")
      .value("drop", "LIST", "columns to leave out")
      .value("one-hot", "LIST", "columns of text: a number, 0 or 1, for each text in them")
      .value("missing", "NAME",
             "a record without a value is an error, is left out (skip), or gets the column's mean (mean)",
             "error")
      .value("decimal", "NAME", "what stands before the fraction of a number: point or comma", "point")
      .value("header", "NAME", "yes, no, or auto: the first record is one if no field of it is a number",
             "auto")
      .value("delimiter", "MARK",
             "between fields: a character, tab, or auto: the one of , ; | and tab that the first line has "
             "most of",
             "auto")
      .toggle(
          "keep-values",
          "the network sees the numbers as they are, not less the mean, by the deviation, of their column "
          "over the training records");
  add_conversion_flags(set, false);
  add_plain_flags(set);
  return set;
}

nlohmann::ordered_json from_csv(const Flags& flags, Output& output) {
  const std::string path = flags.required("file");
  std::vector<std::string> notes;
  auto table = std::make_unique<CsvSource>(path, options_of(flags));
  const fq::detail::CsvSchema schema = table->schema();
  const std::vector<std::string> columns = columns_of(schema);
  check_like(flags, columns);
  note_skipped(*table, path, notes);
  note_counting(schema, notes);
  std::vector<Converting> parts;
  parts.push_back({nullptr, table->labels()});
  parts.back().samples = std::move(table);
  if (flags.given("test-file")) {
    const std::string other = flags.text("test-file");
    auto test = std::make_unique<CsvSource>(other, options_of(flags), &schema);
    note_skipped(*test, other, notes);
    parts.push_back({nullptr, test->labels(), {}});
    parts.back().groups.assign(std::size_t(test->size()), fq::detail::kTest);
    parts.back().samples = std::move(test);
    parts.back().labels.class_names = parts.front().labels.class_names;
  }
  auto result = write_converted(
      flags, output, parts, {.normalise = !flags.on("keep-values"), .columns = columns}, std::move(notes));
  result["columns"] = columns;
  return result;
}

}  // namespace fq::cli
