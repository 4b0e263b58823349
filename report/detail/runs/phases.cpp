#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "fakequant/report/detail/runs/sections.h"
#include "fakequant/report/detail/text.h"

namespace fq::html {
namespace {

using fq::detail::RunRecord;

constexpr int kWorkColours = 10;

std::string flat_value(const nlohmann::ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string table_of(const std::string& title, const nlohmann::ordered_json& object) {
  if (object.empty()) return {};
  std::string out = fmt::format("<details><summary>{}</summary><table><tbody>\n", escaped(title));
  for (const auto& [key, value] : object.items())
    out += fmt::format("<tr><td class=text>{}</td><td class=text>{}</td></tr>\n", escaped(key),
                       escaped(flat_value(value)));
  return out + "</tbody></table></details>\n";
}

}  // namespace

std::string phases_section(const RunRecord& record) {
  const auto* last = record.last("epoch");
  if (last == nullptr || !last->contains("phases")) return {};
  std::vector<std::pair<std::string, double>> work;
  double whole = 0;
  for (const auto& [kind, milliseconds] : (*last)["phases"].items()) {
    work.emplace_back(kind, milliseconds.is_number() ? milliseconds.get<double>() : 0.0);
    whole += work.back().second;
  }
  if (whole <= 0) return {};
  std::ranges::stable_sort(work, std::greater(), &std::pair<std::string, double>::second);
  std::string bar, legend;
  for (std::size_t i = 0; i < work.size(); ++i) {
    const auto& [kind, milliseconds] = work[i];
    const double share = milliseconds / whole;
    bar += fmt::format("<span class=\"f-{}\" style=\"width:{:.2f}%\" title=\"{}: {} ms\"></span>",
                       i % kWorkColours, 100 * share, escaped(kind), number(milliseconds));
    legend +=
        fmt::format("<span class=\"f-{}\">{} {:.0f} %</span>", i % kWorkColours, escaped(kind), 100 * share);
  }
  return fmt::format(
      "<h2>Time of a step</h2>\n<p>{} ms, the mean of all steps so far.</p>\n<div class=work>{}</div>\n<div "
      "class=legend>{}</div>\n",
      number(whole), bar, legend);
}

std::string settings_section(const nlohmann::ordered_json& config) {
  std::string out;
  for (const auto& [key, value] : config.items())
    if (value.is_object()) out += table_of(key, value);
  return out.empty() ? out : "<h2>Settings</h2>\n" + out;
}

}  // namespace fq::html
