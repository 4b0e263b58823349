#include "fakequant/train/data/reader/csv_fields.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace fq::detail {

namespace {

std::string lowered(std::string_view field) {
  std::string lower(field);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return lower;
}

/// Three numbers with the same mark between them, or more behind a blank or a T.
bool is_date(std::string_view field) {
  const auto end = std::min(field.find_first_of(" T"), field.size());
  int marks = 0;
  for (const char c : field.substr(0, end)) {
    const bool mark = c == '-' || c == '/' || c == '.';
    if (!mark && std::isdigit(static_cast<unsigned char>(c)) == 0) return false;
    marks += mark;
  }
  return marks == 2 && end >= 6 && end <= 10;
}

}  // namespace

bool is_missing(std::string_view field) {
  constexpr std::array<std::string_view, 7> kMissing{"", "na", "n/a", "nan", "null", "none", "?"};
  return field.size() <= 4 && std::ranges::find(kMissing, lowered(field)) != kMissing.end();
}

std::optional<double> field_number(std::string_view field) {
  if (field.starts_with('+') && !field.starts_with("+-")) field.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error == std::errc() && end == field.data() + field.size() && std::isfinite(value)) return value;
  if (field.size() > 5) return std::nullopt;
  const std::string word = lowered(field);
  if (word == "true") return 1;
  return word == "false" ? std::optional(0.0) : std::nullopt;
}

std::string field_hint(std::string_view field) {
  std::string point(field);
  std::ranges::replace(point, ',', '.');
  if (field.find(',') != field.npos && field_number(point))
    return "a number with a decimal comma, which --decimal comma reads: ";
  if (is_date(field)) return "a date, of which numbers such as the day of the week have to be made: ";
  if (field.ends_with('%') && field_number(field.substr(0, field.size() - 1)))
    return "a percentage: write its number alone; ";
  return "";
}

}  // namespace fq::detail
