#pragma once

/// JSON written by people: allows comments, and errors name file and line.

#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fakequant/core/error.h"

namespace fq::detail {

inline constexpr int kDeepestJson = 128;  // twice the limit for people: programs nest their texts

/// Returns a key in the form of a JSON pointer (RFC 6901): ~ becomes ~0 and / becomes ~1.
[[nodiscard]] std::string json_pointer_token(const std::string& key);

/// Parses a text that a program wrote, of any size. Throws Json::exception for invalid JSON. Throws
/// ArgumentError for more than kDeepestJson levels, because copying or printing a value needs stack for each
/// level.
template <class Json>
[[nodiscard]] Json parse_json(std::string_view text, bool comments = false) {
  const auto limit = [](int depth, typename Json::parse_event_t, Json&) {
    if (depth > kDeepestJson)
      throw ArgumentError(fmt::format("[json] more than {} levels of nesting", kDeepestJson));
    return true;
  };
  return Json::parse(text, limit, true, comments);
}

/// Returns a whole number from `least` to `most`, or no value for anything else. get<T>() would truncate
/// such values or is undefined for them.
template <class T, class Json>
[[nodiscard]] std::optional<T> whole_if(const Json& value, T least = std::numeric_limits<T>::min(),
                                        T most = std::numeric_limits<T>::max()) {
  const bool fits = value.is_number_unsigned()
                        ? std::in_range<T>(value.template get<std::uint64_t>())
                        : value.is_number_integer() && std::in_range<T>(value.template get<std::int64_t>());
  if (!fits) return std::nullopt;
  const T whole = value.template get<T>();
  return whole < least || most < whole ? std::nullopt : std::optional<T>(whole);
}
/// As above; throws ArgumentError instead of returning no value.
template <class T, class Json>
[[nodiscard]] T whole_value(const Json& value) {
  const auto whole = whole_if<T>(value);
  if (!whole)
    throw ArgumentError(fmt::format("[json] {} is not a whole number from {} to {}",
                                    value.is_number() ? value.dump() : value.type_name(),
                                    std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  return *whole;
}
/// As above for a member; returns `fallback` if it is missing.
template <class T, class Json>
[[nodiscard]] T whole_or(const Json& object, const std::string& key, T fallback) {
  return object.contains(key) ? whole_value<T>(object.at(key)) : fallback;
}
/// As above for a list of whole numbers.
template <class T, class Json>
[[nodiscard]] std::vector<T> whole_values(const Json& values) {
  if (!values.is_array()) throw ArgumentError(fmt::format("[json] a list is needed: {}", values.type_name()));
  std::vector<T> out;
  for (const auto& value : values) out.push_back(whole_value<T>(value));
  return out;
}

/// A parsed text that can find the line of each value. At most 16 MiB and 64 levels deep. Duplicate keys and
/// text after the value are errors.
class JsonText {
 public:
  /// `what` is the prefix of messages ("model"). `file` is the name of the source; with a name errors are
  /// FileErrors, otherwise ArgumentErrors. Throws with the line if the text is not JSON.
  JsonText(std::string_view text, std::string what, std::string file = {});
  /// Wraps a value that a program made. `text` is its JSON; only error messages read it, to find lines.
  [[nodiscard]] static JsonText from_value(nlohmann::ordered_json value, std::string text, std::string what);
  /// Throws FileError if the file cannot be read.
  [[nodiscard]] static std::shared_ptr<const JsonText> load(const std::string& file, std::string what);

  [[nodiscard]] const nlohmann::ordered_json& value() const noexcept { return value_; }
  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  /// Returns the line, from 1, of the value at a JSON pointer ("/nodes/2/options/kernel"); for a member, the
  /// line of its key. If there is no such value, returns the line of the nearest enclosing value. Reads the
  /// text again.
  [[nodiscard]] int line(const std::string& pointer) const;
  /// Returns "[what] ", the prefix of every message about this text.
  [[nodiscard]] std::string origin() const { return "[" + what_ + "] "; }
  /// Throws `[what] file:line: message`, or `[what] line 3: message` without a file.
  [[noreturn]] void fail(const std::string& pointer, const std::string& message) const;

 private:
  JsonText() = default;

  std::string what_, file_, text_;
  nlohmann::ordered_json value_;
};

/// One value of a text, with functions that check and read it. A small handle; the text must outlive it.
class JsonValue {
 public:
  explicit JsonValue(const JsonText& text) : JsonValue(text, text.value(), {}) {}

  [[nodiscard]] const nlohmann::ordered_json& json() const noexcept { return *value_; }
  [[nodiscard]] bool is_object() const noexcept { return value_->is_object(); }
  [[nodiscard]] bool is_array() const noexcept { return value_->is_array(); }
  /// Number of elements of an array or object, else 0.
  [[nodiscard]] std::size_t size() const noexcept;
  /// Returns the key or index, "kernel" or "3"; empty for the whole text.
  [[nodiscard]] std::string key() const;

  /// Throws unless this is an object whose keys are all in `allowed`; the message names the nearest key.
  /// `whose` continues "unknown key 'kernal'", for example "of conv2d 'conv1'".
  void expect_keys(const std::vector<std::string>& allowed, std::string_view whose = {}) const;
  [[nodiscard]] bool has(const std::string& key) const;
  /// Returns the member; throws if it is missing.
  [[nodiscard]] JsonValue at(const std::string& key) const;
  [[nodiscard]] JsonValue at(std::size_t place) const;
  /// Returns the elements of an array; throws for another type.
  [[nodiscard]] std::vector<JsonValue> elements() const;

  /// These functions throw for another type or a value out of range; the message gives the allowed values.
  [[nodiscard]] std::int64_t integer(std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                                     std::int64_t high = std::numeric_limits<std::int64_t>::max()) const;
  [[nodiscard]] double number(double low, double high) const;
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] std::string string() const;
  /// Returns a string that is one of `allowed`; the error names the nearest.
  [[nodiscard]] std::string choice(const std::vector<std::string>& allowed) const;

  [[nodiscard]] const JsonText& text() const noexcept { return *text_; }
  /// Returns the JSON pointer of this value in the text: "/nodes/2".
  [[nodiscard]] const std::string& pointer() const noexcept { return pointer_; }
  /// Throws `[what] file:line: message` with the line of this value.
  [[noreturn]] void fail(const std::string& message) const { text_->fail(pointer_, message); }

 private:
  JsonValue(const JsonText& text, const nlohmann::ordered_json& value, std::string pointer)
      : text_(&text), value_(&value), pointer_(std::move(pointer)) {}
  [[noreturn]] void fail_type(std::string_view expected) const;

  const JsonText* text_;
  const nlohmann::ordered_json* value_;
  std::string pointer_;
};

}  // namespace fq::detail
