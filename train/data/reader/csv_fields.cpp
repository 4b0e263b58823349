#include "fakequant/train/data/reader/csv_fields.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace fq::detail {

bool is_missing(std::string_view field) {
  constexpr std::array<std::string_view, 7> kMissing{"", "na", "n/a", "nan", "null", "none", "?"};
  if (field.size() > 4) return false;
  std::string lower(field);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return std::ranges::find(kMissing, lower) != kMissing.end();
}

std::optional<double> field_number(std::string_view field) {
  if (field.starts_with('+') && !field.starts_with("+-")) field.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

}  // namespace fq::detail
