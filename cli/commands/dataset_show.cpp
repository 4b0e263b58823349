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

std::string html_of(const Flags& flags, const ShownData& data) {
  std::vector<std::pair<std::string, std::string>> facts{
      {"group", flags.text("split")}, {"samples", std::to_string(data.rows)}, {"of", data.kind}};
  if (!data.classes.front().name.empty()) facts.emplace_back("classes", std::to_string(data.classes.size()));
  return contact_sheet_html("Samples of " + flags.text("file"), facts, data);
}

}  // namespace

FlagSet show_data_flags() {
  FlagSet set("dataset show", "Shows samples of each class: images as one picture, any data as a page.",
              "FILE [-o FILE] [--html FILE] [flags]");
  set.group("Data set")
      .argument("file", "FILE", "the data set")
      .value("split", "GROUP", "the group to look at", "train")
      .value("samples", "SAMPLES", "to show, as many of each class", "100")
      .value("augment", "LIST", "show them as training with this --augment would see them")
      .value("seed", "NUMBER", "of that", "0")
      .need({"seed"}, "augment")
      .output("output,o", "FILE", "a picture (PNG) of images", kind::contact_sheet)
      .output("html", "FILE", "a page", kind::page);
  add_plain_flags(set);
  return set;
}

ordered_json show_data(const Flags& flags, Output& output) {
  const std::string png = flags.text("output"), html = flags.text("html");
  FQ_CHECK(!png.empty() || !html.empty(), flags.command(),
           "nothing is to be written: give -o sheet.png or --html page.html");
  const auto count = flags.integer("samples", 1, 1 << 16);
  std::optional<ShownChange> change;
  if (flags.given("augment"))
    change = {.options = read_augment(flags),
              .seed = std::uint64_t(flags.integer("seed", 0, std::int64_t{1} << 40))};
  const auto data = naming_flags([&] {
    return samples_to_show(flags.required("file"), flags.text("split"), count, change);
  });
  const std::string picture = png.empty() ? std::string() : contact_sheet_png(data);
  const std::string page = html.empty() ? std::string() : html_of(flags, data);
  if (!png.empty()) write_file(png, picture);
  if (!html.empty()) write_file(html, page);
  ordered_json classes = ordered_json::array();
  for (const auto& of : data.classes) {
    std::vector<std::int64_t> rows;
    for (const auto& sample : of.samples) rows.push_back(sample.row);
    classes.push_back({{"name", of.name}, {"count", of.count}, {"rows", rows}});
  }
  for (const auto& path : {png, html})
    if (!path.empty()) output.line("written to " + path);
  return {{"file", flags.text("file")},
          {"output", png.empty() ? ordered_json(nullptr) : ordered_json(png)},
          {"html", html.empty() ? ordered_json(nullptr) : ordered_json(html)},
          {"classes", std::move(classes)}};
}

}  // namespace fq::cli
