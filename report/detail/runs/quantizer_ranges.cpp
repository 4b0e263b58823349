#include <fmt/format.h>

#include "fakequant/report/detail/parts.h"
#include "fakequant/report/detail/runs/line_plot.h"
#include "fakequant/report/detail/runs/sections.h"
#include "fakequant/report/detail/text.h"

namespace fq::html {
namespace {

using fq::detail::number_at;
using fq::detail::RunRecord;

/// One number of one quantizer over the epochs.
Curve followed(const RunRecord& record, const std::string& quantizer, const char* key) {
  Curve out{quantizer};
  for (const auto& line : record.lines)
    if (line["event"] == "epoch" && line.contains("quantizers") && line["quantizers"].contains(quantizer) &&
        line["quantizers"][quantizer].contains(key))
      out.points.emplace_back(number_at(line, "step"), number_at(line["quantizers"][quantizer], key));
  return out;
}

std::optional<double> at_end(const Curve& curve) {
  return curve.points.empty() ? std::nullopt : std::optional(curve.points.back().second);
}

std::string line_of(const RunRecord& record, const std::string& quantizer, double last_step) {
  const Curve amax = followed(record, quantizer, "amax"), clipped = followed(record, quantizer, "clipped");
  const auto first = amax.points.empty() ? std::nullopt : std::optional(amax.points.front().second);
  const auto change = first && *first > 0 ? std::optional(*at_end(amax) / *first - 1) : std::nullopt;
  return fmt::format("<tr data-name=\"{0}\"><td class=\"text name\">{0}</td>", escaped(quantizer)) +
         cell(first, number(first)) + cell(at_end(amax), number(at_end(amax))) +
         cell(change, change ? fmt::format("{:+.1f} %", 100 * *change) : std::string(unknown)) + "<td>" +
         sparkline(amax, last_step) + "</td>" + cell(at_end(clipped), percent(at_end(clipped))) + "<td>" +
         sparkline(clipped, last_step) + "</td></tr>\n";
}

}  // namespace

std::string ranges_section(const RunRecord& record, double last_step) {
  const auto* last = record.last("epoch");
  if (last == nullptr || !last->contains("quantizers") || (*last)["quantizers"].empty()) return {};
  std::string out =
      "<h2>Quantizers</h2>\n<p>The range (amax, of several the largest) of each quantizer after every epoch, "
      "and the "
      "share of what activation quantizers are given that lies beyond it, on some training samples. Click a "
      "heading "
      "to sort.</p>\n<div class=tools data-of=quantizers></div>\n<div class=sheet><table "
      "class=sortable><thead><tr>";
  out += head("name", 0, "Quantizer", "text") + head("first", 1, "First amax") + head("amax", 2, "amax") +
         head("change", 3, "Change") + "<th>amax over time</th>" + head("clipped", 5, "Clipped") +
         "<th>Clipped over time</th></tr></thead><tbody>\n";
  for (const auto& [name, value] : (*last)["quantizers"].items()) out += line_of(record, name, last_step);
  return out + "</tbody></table></div>\n";
}

}  // namespace fq::html
