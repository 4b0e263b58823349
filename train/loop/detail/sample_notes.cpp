#include "fakequant/train/loop/detail/sample_notes.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"

namespace fq::detail {
namespace {

using nlohmann::json;

constexpr const char* kInputs = "inputs";
constexpr double kSame = 1e-4;  // relative: attributes are written as f32 and with few digits too

json notes_of(const Dataset& data) {
  const SampleNotes& notes = data.sample_notes();
  json out = json::object();
  if (!notes.columns.empty()) out["columns"] = notes.columns;
  if (notes.scale > 0) out["scale"] = notes.scale;
  if (!notes.mean.empty()) out["mean"] = notes.mean;
  if (!notes.deviation.empty()) out["std"] = notes.deviation;
  return out;
}

void check_columns(const json& own, const json& given, std::string_view function) {
  const auto here = own.get<std::vector<std::string>>(), there = given.get<std::vector<std::string>>();
  if (here == there) return;
  const auto [a, b] = std::ranges::mismatch(here, there);
  const auto name = [](const auto& names, auto at) {
    return at == names.end() ? std::string("nothing") : fmt::format("'{}'", one_line_name(*at));
  };
  FQ_CHECK(
      false, function,
      "column {} of the data is {}, of what the network was trained on {}: make the data again with that "
      "data set as --like, or by --columns",
      a - here.begin(), name(there, b), name(here, a));
}

std::vector<double> numbers(const json& value) {
  return value.is_number() ? std::vector{value.get<double>()} : value.get<std::vector<double>>();
}

/// One value stands for all channels.
bool same_numbers(const json& a, const json& b) {
  const auto x = numbers(a), y = numbers(b);
  if (x.empty() || y.empty() || (x.size() != y.size() && x.size() != 1 && y.size() != 1)) return false;
  for (std::size_t i = 0; i < std::max(x.size(), y.size()); ++i) {
    const double u = x[x.size() == 1 ? 0 : i], v = y[y.size() == 1 ? 0 : i];
    if (!(std::abs(u - v) <= kSame * std::max(std::abs(u), std::abs(v)))) return false;
  }
  return true;
}

std::string shown(const json& value) {
  const auto all = numbers(value);
  return fmt::format("{:.6g}{}",
                     fmt::join(all.begin(), all.begin() + std::min<std::ptrdiff_t>(std::ssize(all), 4), ", "),
                     all.size() > 4 ? ", .." : "");
}

/// What data does of which nothing is said, where it says something of its scale.
const std::map<std::string, double> kDefaults{{"scale", 1}, {"mean", 0}, {"std", 1}};

bool says_scale(const json& notes) {
  return std::ranges::any_of(kDefaults, [&](const auto& key) { return notes.contains(key.first); });
}

std::string compare_scales(const json& own, const json& given, std::string_view function) {
  if (!says_scale(own) || !says_scale(given)) return {};
  for (const auto& [key, value] : kDefaults) {
    const json here = own.value(key, json(value)), there = given.value(key, json(value));
    if (!same_numbers(here, there))
      return fmt::format(
          "[{}] the data has a {} of {}, what the network was trained on {}: make the data again "
          "with that data set as --like, or its numbers mean something else here",
          function, key, shown(there), shown(here));
  }
  return {};
}

}  // namespace

void check_notes_of(const json& identity) {
  const json own = identity.value(kInputs, json::object());
  FQ_CHECK(own.is_object(), "checkpoint", "its inputs are {}: they are columns, scale, mean and std",
           own.type_name());
  if (own.contains("columns")) (void)own["columns"].get<std::vector<std::string>>();
  for (const auto& [key, value] : kDefaults)
    if (own.contains(key)) (void)numbers(own[key]);
}

std::string check_sample_notes(const json& identity, const Dataset& data, std::string_view function) {
  const json own = identity.value(kInputs, json::object()), given = notes_of(data);
  if (own.contains("columns") && given.contains("columns"))
    check_columns(own["columns"], given["columns"], function);
  return compare_scales(own, given, function);
}

std::string take_sample_notes(json& identity, const Dataset& data, std::string_view function) {
  std::string warning = check_sample_notes(identity, data, function);
  const json given = notes_of(data);
  if (given.empty()) return warning;
  json own = identity.value(kInputs, json::object());
  const bool scaled = says_scale(own);
  for (const auto& [key, value] : given.items())
    if (!own.contains(key) && (key == "columns" || !scaled)) own[key] = value;
  identity[kInputs] = own;
  return warning;
}

}  // namespace fq::detail
