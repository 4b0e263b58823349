#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/report/detail/runs/sections.h"
#include "fakequant/report/detail/text.h"

namespace fq::html {
namespace {

using fq::detail::RunRecord;
using nlohmann::ordered_json;

constexpr std::size_t kMostClasses = 32, kMostPairs = 30;
constexpr double kStrong = 0.55;  // share from which text is white

/// How often samples of one class were taken for another.
struct Confused {
  std::size_t label = 0, answer = 0;
  std::int64_t count = 0, of = 0;
};

std::string class_name(const ordered_json& classes, std::size_t index) {
  const auto& names = classes["names"];
  return escaped(index < names.size() ? names[index].get<std::string>() : std::to_string(index));
}

std::vector<Confused> counts_of(const ordered_json& classes) {
  std::vector<Confused> out;
  for (std::size_t label = 0; label < classes["confusion"].size(); ++label) {
    const auto& row = classes["confusion"][label];
    std::int64_t of = 0;
    for (const auto& count : row) of += fq::detail::whole_value<std::int64_t>(count);
    for (std::size_t answer = 0; answer < row.size(); ++answer)
      out.push_back({label, answer, fq::detail::whole_value<std::int64_t>(row[answer]), of});
  }
  return out;
}

std::string count_cell(const Confused& entry) {
  if (entry.count == 0) return "<td></td>";
  const double share = double(entry.count) / double(entry.of);
  return fmt::format("<td class=\"{}{}\" style=\"--v:{:.0f}%\">{}</td>",
                     entry.label == entry.answer ? "right" : "wrong", share > kStrong ? " strong" : "",
                     15 + 85 * share, entry.count);
}

std::string matrix(const ordered_json& classes) {
  std::string out =
      "<div class=sheet><table class=matrix><thead><tr><th class=text>is, below; taken for</th>";
  for (std::size_t c = 0; c < classes["confusion"].size(); ++c)
    out += "<th scope=col>" + class_name(classes, c) + "</th>";
  out += "</tr></thead><tbody>\n";
  for (const auto& entry : counts_of(classes)) {
    if (entry.answer == 0)
      out += fmt::format("{}<tr><th scope=row class=text>{}</th>", entry.label == 0 ? "" : "</tr>\n",
                         class_name(classes, entry.label));
    out += count_cell(entry);
  }
  return out + "</tr>\n</tbody></table></div>\n";
}

std::string most_confused(const ordered_json& classes) {
  auto all = counts_of(classes);
  std::erase_if(all, [](const auto& entry) { return entry.label == entry.answer || entry.count == 0; });
  std::ranges::stable_sort(all, std::greater(), &Confused::count);
  if (all.size() > kMostPairs) all.resize(kMostPairs);
  std::string out =
      "<div class=sheet><table><thead><tr><th class=text>Class</th><th class=text>taken for</th>"
      "<th>times</th><th>of</th></tr></thead><tbody>\n";
  for (const auto& entry : all)
    out += fmt::format("<tr><td class=text>{}</td><td class=text>{}</td><td>{}</td><td>{}</td></tr>\n",
                       class_name(classes, entry.label), class_name(classes, entry.answer), entry.count,
                       entry.of);
  return out + "</tbody></table></div>\n";
}

std::string worst_samples(const ordered_json& classes, const std::map<std::int64_t, std::string>& shown) {
  if (classes["worst"].empty()) return {};
  std::string out =
      "<h3>Worst samples</h3>\n<p>Those that are wrong with the least probability of the right class; below "
      "each its "
      "row, what it is and what it was taken for.</p>\n<div class=samples>\n";
  for (const auto& sample : classes["worst"]) {
    const auto row = fq::detail::whole_value<std::int64_t>(sample["row"]);
    const auto found = shown.find(row);
    out += fmt::format("<figure>{}<figcaption>{}<br>{}, not {}<br>{:.2g} %</figcaption></figure>\n",
                       found == shown.end() ? std::string() : found->second, row,
                       class_name(classes, fq::detail::whole_value<std::size_t>(sample["label"])),
                       class_name(classes, fq::detail::whole_value<std::size_t>(sample["answer"])),
                       100 * fq::detail::number_at(sample, "probability"));
  }
  return out + "</div>\n";
}

}  // namespace

std::string classes_section(const RunRecord& record, const std::map<std::int64_t, std::string>& shown) {
  const auto* classes = record.last("classes");
  if (classes == nullptr) return {};
  std::string out = fmt::format("<h2>Classes</h2>\n<p>{} {} samples, after step {}.</p>\n",
                                grouped(fq::detail::whole_value<std::int64_t>((*classes)["samples"])),
                                escaped((*classes)["of"].get<std::string>()),
                                fq::detail::whole_value<std::int64_t>((*classes)["step"]));
  out += (*classes)["confusion"].size() <= kMostClasses ? matrix(*classes) : most_confused(*classes);
  return out + worst_samples(*classes, shown);
}

}  // namespace fq::html
