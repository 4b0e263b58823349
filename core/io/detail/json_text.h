#pragma once

/// JSON that people write: comments, and errors that name file and line.

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

inline constexpr int kDeepestJson = 128;  // twice what people may write: programs put that into more

/// A key as it stands in a JSON pointer (RFC 6901): ~ is ~0, / is ~1.
[[nodiscard]] std::string json_pointer_token(const std::string& key);

/// The value of a text that a program wrote, of any size. Throws Json::exception for what is not JSON,
/// ArgumentError for more than kDeepestJson levels: copying or printing a value takes stack for each.
template <class Json>
[[nodiscard]] Json parse_json(std::string_view text, bool comments = false) {
  const auto limit = [](int depth, typename Json::parse_event_t, Json&) {
    if (depth > kDeepestJson)
      throw ArgumentError(fmt::format("[json] there are more than {} levels of nesting", kDeepestJson));
    return true;
  };
  return Json::parse(text, limit, true, comments);
}

/// A whole number from `least` to `most`: of others, which get<T>() cuts off or for which it is undefined,
/// nothing.
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
/// The same; throws ArgumentError for others.
template <class T, class Json>
[[nodiscard]] T whole_value(const Json& value) {
  const auto whole = whole_if<T>(value);
  if (!whole)
    throw ArgumentError(fmt::format("[json] {} is no whole number from {} to {}",
                                    value.is_number() ? value.dump() : value.type_name(),
                                    std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  return *whole;
}
/// The same of a member; `fallback` where there is none.
template <class T, class Json>
[[nodiscard]] T whole_or(const Json& object, const std::string& key, T fallback) {
  return object.contains(key) ? whole_value<T>(object.at(key)) : fallback;
}
/// A list of them.
template <class T, class Json>
[[nodiscard]] std::vector<T> whole_values(const Json& values) {
  if (!values.is_array()) throw ArgumentError(fmt::format("[json] a list is needed: {}", values.type_name()));
  std::vector<T> out;
  for (const auto& value : values) out.push_back(whole_value<T>(value));
  return out;
}

/// A parsed text that finds the line of each of its values. At most 16 MiB, 64 levels deep; a key that is
/// given twice is an error, as is anything after the value.
class JsonText {
 public:
  /// `what` opens messages ("model"); `file` names the source and makes errors FileErrors, empty makes them
  /// ArgumentErrors. Throws for text that is not JSON, with its line.
  JsonText(std::string_view text, std::string what, std::string file = {});
  /// Of a value that a program made. `text` says the same; it is read for the lines that errors name alone.
  [[nodiscard]] static JsonText of_value(nlohmann::ordered_json value, std::string text, std::string what);
  /// Throws FileError when the file can't be read.
  [[nodiscard]] static std::shared_ptr<const JsonText> load(const std::string& file, std::string what);

  [[nodiscard]] const nlohmann::ordered_json& value() const noexcept { return value_; }
  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  /// The line, from 1, where the value of that JSON pointer ("/nodes/2/options/kernel") begins, for a member
  /// that of its key; the line of the nearest value around it when there is none. Reads the text again.
  [[nodiscard]] int line(const std::string& pointer) const;
  /// "[what] ": what every message about this text begins with.
  [[nodiscard]] std::string origin() const { return "[" + what_ + "] "; }
  /// Throws `[what] file:line: message`, without a file `[what] line 3: message`.
  [[noreturn]] void fail(const std::string& pointer, const std::string& message) const;

 private:
  JsonText() = default;

  std::string what_, file_, text_;
  nlohmann::ordered_json value_;
};

/// One value of a text, with readers that check it. A small handle; the text must outlive it.
class JsonValue {
 public:
  explicit JsonValue(const JsonText& text) : JsonValue(text, text.value(), {}) {}

  [[nodiscard]] const nlohmann::ordered_json& json() const noexcept { return *value_; }
  [[nodiscard]] bool is_object() const noexcept { return value_->is_object(); }
  [[nodiscard]] bool is_array() const noexcept { return value_->is_array(); }
  /// Of an array or object, else 0.
  [[nodiscard]] std::size_t size() const noexcept;
  /// Its key or its place, "kernel" or "3"; empty for the whole text.
  [[nodiscard]] std::string key() const;

  /// Throws unless this is an object and each key is one of `allowed`, naming the nearest. `whose` goes on
  /// after "unknown key 'kernal'": "of conv2d 'conv1'".
  void expect_keys(const std::vector<std::string>& allowed, std::string_view whose = {}) const;
  [[nodiscard]] bool has(const std::string& key) const;
  /// The member; throws when it is missing.
  [[nodiscard]] JsonValue at(const std::string& key) const;
  [[nodiscard]] JsonValue at(std::size_t place) const;
  /// The elements of an array; throws for another type.
  [[nodiscard]] std::vector<JsonValue> elements() const;

  /// Each throws for another type or a value out of range, saying what is allowed.
  [[nodiscard]] std::int64_t integer(std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                                     std::int64_t high = std::numeric_limits<std::int64_t>::max()) const;
  [[nodiscard]] double number(double low, double high) const;
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] std::string string() const;
  /// A string that is one of `allowed`; the error names the nearest.
  [[nodiscard]] std::string choice(const std::vector<std::string>& allowed) const;

  [[nodiscard]] const JsonText& text() const noexcept { return *text_; }
  /// The JSON pointer of this value in the text: "/nodes/2".
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
