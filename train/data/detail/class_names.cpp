#include "fakequant/train/data/detail/class_names.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/log.h"

namespace fq::detail {
namespace {

constexpr const char* kClasses = "classes";
constexpr std::string_view kBlank = " \t\r\n";

std::string trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(kBlank);
  if (begin == text.npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin));
}

/// Null for what is no JSON, or nests too deep.
nlohmann::json json_in(std::string_view text) try {
  return parse_json<nlohmann::json>(text);
} catch (const nlohmann::json::exception&) {
  return {};
} catch (const ArgumentError&) {
  return {};
}

std::vector<std::string> json_names(std::string_view text) {
  const nlohmann::json value = json_in(text);
  if (!value.is_array() || !std::ranges::all_of(value, [](const auto& item) { return item.is_string(); }))
    return {};
  return value.get<std::vector<std::string>>();
}

bool is_count(double value) {
  return value == std::floor(value) && value >= 1 && value <= static_cast<double>(kMostClasses);
}

/// Of a text that is a number.
std::optional<std::int64_t> count_in(const std::vector<std::string>& texts) {
  if (texts.size() != 1) return std::nullopt;
  const nlohmann::json value = json_in(texts[0]);
  if (!value.is_number() || !is_count(value.get<double>())) return std::nullopt;
  return static_cast<std::int64_t>(value.get<double>());
}

std::vector<std::string> names_of(std::vector<std::string> texts) {
  if (texts.size() == 1) texts = split_names(texts[0]);
  std::ranges::transform(texts, texts.begin(), one_line_name);
  return texts;
}

}  // namespace

std::vector<std::string> split_names(std::string_view text) {
  const std::string whole = trimmed(text);
  if (whole.empty()) return {};
  if (whole[0] == '[' || whole[0] == '{') return json_names(whole);
  const char mark = whole.find('\n') != whole.npos ? '\n' : ',';
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= whole.size();) {
    const auto end = std::min(whole.find(mark, begin), whole.size());
    names.push_back(trimmed(std::string_view(whole).substr(begin, end - begin)));
    begin = end + 1;
  }
  return names;
}

StatedClasses read_classes(const Hdf5Reader& file, const std::string& group) {
  const std::string at = file.has_attribute(group, kClasses) ? group : "/";
  if (!file.has_attribute(at, kClasses)) return {};
  if (const auto texts = file.texts(at, kClasses)) {
    if (const auto count = count_in(*texts)) return {*count, {}};
    auto names = names_of(*texts);
    if (!names.empty()) return {static_cast<std::int64_t>(names.size()), std::move(names)};
  } else if (file.has_numbers(at, kClasses)) {
    const auto values = *file.numbers(at, kClasses);
    if (values.size() == 1 && is_count(values[0])) return {static_cast<std::int64_t>(values[0]), {}};
    if (values.size() == 1)
      throw FileError(
          file.path(), at,
          fmt::format("[dataset] {} has an attribute 'classes' of {}: give their number, 1 to {}, or "
                      "their names",
                      file.path(), values[0], kMostClasses));
  }
  log(LogLevel::warning,
      fmt::format(
          "[dataset] {} has an attribute 'classes' that is left alone: give a number, a list of names, "
          "or a text as [\"cat\", \"dog\"]",
          file.path()));
  return {};
}

}  // namespace fq::detail
