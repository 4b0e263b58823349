#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq::detail {

using nlohmann::ordered_json;

namespace {

/// Returns the value as shortened JSON text.
std::string shortened_value(const ordered_json& value) {
  // Lists and objects may be large: messages name their kind instead of their contents.
  const auto text = value.is_array() ? "a list" : value.is_object() ? "an object" : value.dump();
  return text.size() <= 60 ? text : text.substr(0, 57) + "..";
}

}  // namespace

std::size_t JsonValue::size() const noexcept { return value_->is_structured() ? value_->size() : 0; }

std::string JsonValue::key() const {
  return pointer_.empty() ? "" : ordered_json::json_pointer(pointer_).back();
}

void JsonValue::fail_type(std::string_view expected) const {
  const auto name = key();
  fail(fmt::format("{}{} is not {}", name.empty() ? "" : fmt::format("'{}': ", shortened(name)),
                   shortened_value(*value_), expected));
}

void JsonValue::expect_keys(const std::vector<std::string>& allowed, std::string_view whose) const {
  if (!is_object()) fail_type("an object");
  for (const auto& [key, value] : value_->items()) {
    if (std::ranges::find(allowed, key) != allowed.end()) continue;
    // Fails at the unknown key, so that the message has its line.
    at(key).fail(fmt::format("unknown key '{}'{}{}{}", shortened(key), whose.empty() ? "" : " ", whose,
                             allowed.empty() ? ": it takes none" : did_you_mean(shortened(key), allowed)));
  }
}

bool JsonValue::has(const std::string& key) const { return value_->is_object() && value_->contains(key); }

JsonValue JsonValue::at(const std::string& key) const {
  if (!is_object()) fail_type("an object");
  const auto found = value_->find(key);
  if (found == value_->end()) fail(fmt::format("the key '{}' is missing", key));
  // Each value carries its JSON pointer, from which an error finds its line.
  return {*text_, *found, pointer_ + "/" + json_pointer_token(key)};
}

JsonValue JsonValue::at(std::size_t place) const {
  return {*text_, value_->at(place), pointer_ + "/" + std::to_string(place)};
}

std::vector<JsonValue> JsonValue::elements() const {
  if (!is_array()) fail_type("a list");
  std::vector<JsonValue> out;
  out.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) out.push_back(at(i));
  return out;
}

std::int64_t JsonValue::integer(std::int64_t low, std::int64_t high) const {
  // Numbers above the largest int64 are unsigned in nlohmann's value: `get<int64_t>` would wrap.
  const bool fits = value_->is_number_integer() &&
                    !(value_->is_number_unsigned() &&
                      value_->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()});
  if (!fits || value_->get<std::int64_t>() < low || value_->get<std::int64_t>() > high)
    fail_type(fmt::format("a whole number from {} to {}", low, high));
  return value_->get<std::int64_t>();
}

double JsonValue::number(double low, double high) const {
  const double value = value_->is_number() ? value_->get<double>() : std::nan("");
  // The negated form also rejects NaN, the value of everything that is not a number.
  if (!(value >= low && value <= high)) fail_type(fmt::format("a number from {} to {}", low, high));
  return value;
}

bool JsonValue::boolean() const {
  if (!value_->is_boolean()) fail_type("true or false");
  return value_->get<bool>();
}

std::string JsonValue::string() const {
  if (!value_->is_string()) fail_type("a text in quotes");
  return value_->get<std::string>();
}

std::string JsonValue::choice(const std::vector<std::string>& allowed) const {
  auto text = string();
  if (std::ranges::find(allowed, text) == allowed.end())
    fail(fmt::format("unknown {} '{}'{}", key(), shortened(text), did_you_mean(shortened(text), allowed)));
  return text;
}

}  // namespace fq::detail
