#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/augmentation.h"
#include "fakequant/cli/commands/dataset.h"
#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/report/detail/contact_sheet.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

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
           "nothing is to be written: give -o sheet.png or --html page.html");
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

}  // namespace

Command dataset_show_command() {
  return {"dataset show", "a page or a picture of samples of each class",
          typed(show_data_flags, plan_show_data)};
}

}  // namespace fq::cli
