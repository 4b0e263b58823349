#include "fakequant/report/detail/quantizer_table.h"

#include <algorithm>

#include <fmt/format.h>

#include "fakequant/report/detail/histogram_svg.h"
#include "fakequant/report/detail/parts.h"
#include "fakequant/report/detail/text.h"

namespace fq::html {
namespace {

constexpr double kFullBar = 70;  // dB

std::string span_text(const RangeReport& range, int digits) {
  if (!range.highest || *range.lowest == *range.highest) return number(range.highest);
  return number(range.lowest, digits) + "–<wbr>" + number(range.highest, digits);
}

std::string sqnr_cell(std::optional<double> sqnr) {
  const double share = std::clamp(sqnr.value_or(0) / kFullBar, 0.0, 1.0);
  return cell(sqnr, decibels(sqnr), "sqnr", fmt::format("--v:{:.0f}%", 100 * share));
}

std::string heads() {
  const auto& methods = report_methods();
  std::string out = fmt::format(
      "<thead><tr><th colspan=4></th><th colspan=2 class=group>Values</th><th colspan=4 class=group>Range in "
      "force</th><th colspan={} class=group>amax by method</th></tr><tr>",
      methods.size());
  out += head("place", 0, "#") + head("name", 1, "Quantizer", "text") + head("format", 2, "Format", "text") +
         "<th scope=col class=text>Histogram</th>" + head("min", 4, "Min", "first") +
         head("largest", 5, "Max |x|") + head("method", 6, "Method", "text first") + head("amax", 7, "amax") +
         head("clipped", 8, "Clipped") + head("sqnr", 9, "SQNR");
  for (std::size_t i = 0; i < methods.size(); ++i)
    out += head(methods[i], 10 + static_cast<int>(i),
                fmt::format("<span class=\"dot m-{0}\">{0}</span>", methods[i]), i == 0 ? "first" : "");
  return out + "</tr></thead>";
}

std::string line(const QuantizerReport& q, std::size_t place) {
  const auto& force = q.in_force;
  std::string out = fmt::format(
      "<tr data-name=\"{0}\"><td class=soft data-v={1}>{1}</td><td class=\"text name\"><a "
      "href=\"#q{1}\">{0}</a></td>"
      "<td class=text title=\"{2}\">{3}</td><td class=text>{4}</td>",
      escaped(q.name), place, escaped(q.granularity), escaped(q.format), histogram_thumbnail(q));
  out += cell(q.minimum, number(q.minimum), "first") + cell(q.largest, number(q.largest)) +
         fmt::format("<td class=\"text first\">{}</td>", escaped(force.method));
  out += cell(force.highest, span_text(force, 3), "range") + cell(force.clipped, percent(force.clipped)) +
         sqnr_cell(force.sqnr_db);
  for (const auto& range : q.methods)
    out += cell(range.highest, span_text(range, 3), &range == &q.methods.front() ? "range first" : "range");
  return out + "</tr>\n";
}

std::string range_line(const RangeReport& range, std::string_view kind, std::string_view label) {
  return fmt::format("<tr class=\"m-{}\"><td class=text>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>", kind,
                     label, span_text(range, 4), percent(range.clipped), decibels(range.sqnr_db));
}

}  // namespace

std::string quantizer_table(const std::vector<QuantizerReport>& quantizers) {
  std::string out = "<div class=sheet><table class=\"sortable layers\">" + heads() + "<tbody>\n";
  for (std::size_t i = 0; i < quantizers.size(); ++i) out += line(quantizers[i], i + 1);
  return out + "</tbody></table></div>\n";
}

std::string range_table(const QuantizerReport& q) {
  std::string out =
      "<table><thead><tr><th scope=col class=text>Range</th><th scope=col>amax</th><th scope=col>Clipped</th>"
      "<th scope=col>SQNR</th></tr></thead><tbody>";
  out += range_line(q.in_force, "force", "in force: " + escaped(q.in_force.method));
  for (const auto& range : q.methods) out += range_line(range, range.method, range.method);
  return out + "</tbody></table>";
}

}  // namespace fq::html
