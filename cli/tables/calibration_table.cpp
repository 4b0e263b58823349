#include "fakequant/cli/tables/calibration_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

namespace fq::cli {
namespace {

using nlohmann::ordered_json;
using TextCells = std::vector<std::string>;

constexpr std::size_t kTextColumns = 2;  // flush left

std::string text_of(std::optional<double> value) { return value ? fmt::format("{:.4g}", *value) : "-"; }

std::string share_text(std::optional<double> share) {
  return share ? fmt::format("{:.3g} %", 100 * *share) : "-";
}

std::string decibel_text(std::optional<double> value) {
  return value ? fmt::format("{:.1f} dB", *value) : "-";
}

std::string amax_text(const RangeReport& range) {
  if (!range.highest || *range.lowest == *range.highest) return text_of(range.highest);
  return fmt::format("{:.3g}..{:.3g}", *range.lowest, *range.highest);
}

TextCells line_of(const QuantizerReport& q) {
  TextCells out{q.name, q.format, text_of(q.minimum), text_of(q.largest)};
  for (const auto& range : q.methods) out.push_back(amax_text(range));
  out.insert(out.end(), {q.in_force.method, amax_text(q.in_force), share_text(q.in_force.clipped),
                         decibel_text(q.in_force.sqnr_db)});
  return out;
}

TextCells heads() {
  TextCells out{"quantizer", "format", "min", "max |x|"};
  for (const auto& method : report_methods()) out.push_back(method);
  out.insert(out.end(), {"in force", "amax", "clipped", "SQNR"});
  return out;
}

std::string aligned(const std::vector<TextCells>& lines) {
  std::vector<std::size_t> widths(lines.front().size());
  for (const auto& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  std::string out;
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i)
      out += i < kTextColumns
                 ? fmt::format("{:<{}}  ", line[i], widths[i])
                 : fmt::format("{:>{}}{}", line[i], widths[i], i + 1 < line.size() ? "  " : "\n");
  }
  return out;
}

/// Each reason once, with how many quantizers it is of.
std::string reasons(const std::vector<QuantizerReport>& quantizers) {
  std::map<std::string, std::vector<std::string>> found;
  for (const auto& q : quantizers) {
    const auto add = [&](const std::string& reason) {
      auto& names = found[reason];
      if (names.empty() || names.back() != q.name) names.push_back(q.name);
    };
    for (const auto& range : q.methods) add(range.reason);
    add(q.in_force.reason);
  }
  found.erase("");
  std::string out;
  for (const auto& [reason, names] : found)
    out += fmt::format("-: {} ({}{})\n", reason, names.front(),
                       names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : "");
  return out;
}

ordered_json number(std::optional<double> value) {
  return value && std::isfinite(*value) ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json range_json(const RangeReport& range) {
  ordered_json out{{"method", range.method}, {"amax", nullptr}};
  if (range.highest) out["amax"] = {*range.lowest, *range.highest};
  out["clipped"] = number(range.clipped);
  out["sqnr_db"] = number(range.sqnr_db);
  out["exact"] = range.sqnr_db.has_value() && !std::isfinite(*range.sqnr_db);
  if (!range.reason.empty()) out["reason"] = range.reason;
  return out;
}

}  // namespace

std::string calibration_table(const std::vector<QuantizerReport>& quantizers) {
  std::vector<TextCells> lines{heads()};
  for (const auto& q : quantizers) lines.push_back(line_of(q));
  std::string out = aligned(lines) + reasons(quantizers);
  out.pop_back();  // the last line's end
  return out;
}

ordered_json calibration_json(const std::vector<QuantizerReport>& quantizers) {
  ordered_json out = ordered_json::array();
  for (const auto& q : quantizers) {
    ordered_json one{{"name", q.name},
                     {"aliases", q.aliases},
                     {"kind", q.is_weight ? "weight" : "activation"},
                     {"format", q.format},
                     {"granularity", q.granularity},
                     {"count", q.count},
                     {"minimum", number(q.minimum)},
                     {"largest", number(q.largest)},
                     {"calibrated", q.is_chosen},
                     {"in_force", range_json(q.in_force)}};
    auto methods = ordered_json::array();
    for (const auto& range : q.methods) methods.push_back(range_json(range));
    if (!methods.empty()) one["methods"] = std::move(methods);
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace fq::cli
