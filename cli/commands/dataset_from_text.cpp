#include <filesystem>
#include <nlohmann/json.hpp>

#include "fakequant/cli/commands/dataset.h"
#include "fakequant/cli/commands/text_windows.h"
#include "fakequant/cli/conversion.h"
#include "fakequant/cli/flags/tokenizer_flags.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/reader/class_folders.h"
#include "fakequant/train/data/reader/text_source.h"
#include "fakequant/train/data/writer/vocabulary.h"

namespace fq::cli {
namespace {

using fq::detail::TextList;
using fq::detail::TextSource;
using fq::detail::Tokenizer;
using fq::detail::TokenUnit;
using Names = std::vector<std::string>;

struct Texts {
  std::unique_ptr<TextList> list;
  fq::detail::Labels labels;
  std::vector<std::uint8_t> groups = {};
};

Texts texts_of_folder(const Flags& flags, const std::string& path, const Names& known) {
  const auto listing = fq::detail::list_folder(path, {".txt", ".text", ".md"}, known);
  std::vector<std::string> paths;
  std::vector<std::int64_t> labels;
  Texts texts;
  for (const auto& file : listing.files) {
    paths.push_back(file.path);
    labels.push_back(file.label);
    if (listing.split) texts.groups.push_back(file.group);
  }
  if (!listing.classes.empty())
    texts.labels = {fq::detail::Task::classes, Tensor::from(labels, {std::int64_t(labels.size())}),
                    listing.classes};
  FQ_CHECK(!listing.split || !flags.given("test-file"), flags.command(),
           "{} has a folder for each group: --test-file is not taken beside it", path);
  texts.list = fq::detail::text_files(std::move(paths));
  return texts;
}

Texts texts_of(const Flags& flags, const std::string& path, const std::string& label_file,
               const Names& known) {
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) return texts_of_folder(flags, path, known);
  Texts texts;
  fq::detail::LabelCollector labels(known);
  if (flags.given("text")) {
    texts.list =
        fq::detail::text_column(path, delimiter_of(flags), flags.text("text"), flags.text("label"), labels);
  } else {
    texts.list = fq::detail::text_lines(path);
    if (!label_file.empty()) label_lines(label_file, labels);
    if (!label_file.empty() && labels.size() != texts.list->size())
      throw FileError(label_file, "",
                      fmt::format("[dataset] {} has {} lines, {} has {}: give one label for each", label_file,
                                  labels.size(), path, texts.list->size()));
  }
  if (labels.size() > 0) texts.labels = labels.take();
  return texts;
}

/// Words of the training texts, or what another data set or a file says.
Tokenizer tokenizer_of(const Flags& flags, TextList& texts, const std::vector<std::uint8_t>& groups) {
  if (auto given = given_tokenizer(flags)) {
    FQ_CHECK(given->unit() != TokenUnit::characters, flags.command(),
             "--like {} is windows of one text: give --windows", flags.text("like"));
    return *std::move(given);
  }
  const std::string unit = unit_of(flags, "bytes");
  FQ_CHECK(
      unit != "characters", flags.command(),
      "--tokens characters goes with --windows, one long text: of a text on each line give bytes or words");
  if (unit == "bytes") return {};
  fq::detail::WordCount count;
  const bool any = std::ranges::find(groups, fq::detail::kTrain) != groups.end();
  for (std::int64_t i = 0; i < texts.size(); ++i)
    if (!any || groups[std::size_t(i)] == fq::detail::kTrain) count.add(texts.text(i));
  return Tokenizer(count.vocabulary(flags.integer("vocabulary", 3, 1 << 24)));
}

}  // namespace

FlagSet from_text_flags() {
  FlagSet set("dataset from-text",
              "Makes a data set of texts: the first tokens of each, and the rest filled with 0.",
              "FILE|FOLDER -o FILE [flags]");
  set.group("Texts")
      .argument(
          "file", "FILE|FOLDER",
          "a text on each line, in gzip too; a CSV file with --text; or a folder of .txt files in a folder "
          "for each class")
      .value("labels", "FILE", "a label, number or text, on each line")
      .value("text", "COLUMN", "of a CSV file: the column of texts")
      .value("label", "COLUMN", "of a CSV file: the column of labels")
      .value("delimiter", "MARK", "of a CSV file: a character, tab or auto", "auto")
      .value("test-file", "FILE", "texts for the group test, in place of a share")
      .value("test-labels", "FILE", "their labels")
      .value("length", "TOKENS", "of a sample: longer texts are cut (with --like: as there)", "128");
  add_tokenizer_flags(set);
  add_window_flags(set);
  add_conversion_flags(set, false);
  add_plain_flags(set);
  return set;
}

nlohmann::ordered_json from_text(const Flags& flags, Output& output) {
  if (flags.given("windows")) return from_text_windows(flags, output);
  FQ_CHECK(!flags.given("stride"), flags.command(),
           "--stride is between windows: give --windows, their size");
  const auto like = like_of(flags);
  const std::int64_t length =
      like && !flags.given("length") ? like->sample[0] : flags.integer("length", 1, 1 << 20);
  const Names known = given_class_names(flags);
  FQ_CHECK(flags.given("text") || !flags.given("label"), flags.command(),
           "--label names a column of a CSV file: give --text, its column of texts, too");
  std::vector<Texts> all;
  all.push_back(texts_of(flags, flags.required("file"), flags.text("labels"), known));
  if (flags.given("test-file"))
    all.push_back(texts_of(flags, flags.text("test-file"), flags.text("test-labels"),
                           known.empty() ? class_names_of(all[0].labels) : known));
  std::vector<Converting> parts;
  std::vector<TextSource*> sources;
  for (auto& texts : all) {
    auto source = std::make_unique<TextSource>(std::move(texts.list), length);
    sources.push_back(source.get());
    parts.push_back({std::move(source), texts.labels, texts.groups});
    auto& part = parts.back();
    if (parts.size() > 1) part.groups.assign(std::size_t(part.samples->size()), fq::detail::kTest);
    if (part.groups.empty())
      part.groups = groups_of(flags, part.labels, part.samples->size(), all.size() > 1);
  }
  const Tokenizer tokenizer = tokenizer_of(flags, sources[0]->texts(), parts[0].groups);
  for (auto* source : sources) source->use(tokenizer);
  if (parts.size() > 1) parts[1].labels.class_names = parts[0].labels.class_names;
  check_same(parts, flags);
  const std::string kind = tokenizer.unit_name();
  const auto options = fq::detail::options_of(tokenizer);
  auto result =
      write_converted(flags, output, parts, options,
                      {fmt::format("tokens are {}: \"vocabulary\": {} in a model", kind, tokenizer.size())});
  result["vocabulary"] = tokenizer.size();
  return result;
}

}  // namespace fq::cli
