#pragma once

/// Types of the JSON files that this program writes. A reader checks a file once, so that later code needs no
/// checks.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/core/io/detail/json_text.h"

namespace fq::detail {

struct JsonField;

/// The JSON type of a value and of its members.
///
///     const JsonShape phase = JsonShape::object({{"name", JsonShape::text(), true}});
///     const JsonShape report = JsonShape::object({{"phases", JsonShape::list(phase)}});
class JsonShape {
 public:
  static JsonShape any();
  static JsonShape text();
  static JsonShape flag();
  static JsonShape whole();   ///< fits std::int64_t
  static JsonShape number();  ///< or null for NaN
  static JsonShape object(std::vector<JsonField> fields = {});
  static JsonShape uniform_object(JsonShape each);  ///< all members have the shape `each`
  static JsonShape list(JsonShape each);

  /// Returns the JSON pointer of the first value that does not fit, and the problem with its key. Returns
  /// nothing if all values fit.
  [[nodiscard]] std::optional<std::pair<std::string, std::string>> mismatch(
      const nlohmann::ordered_json& value, const std::string& pointer = {}) const;

 private:
  enum class Type { any, text, flag, whole, number, object, list };
  explicit JsonShape(Type type);
  [[nodiscard]] bool fits(const nlohmann::ordered_json& value) const;

  Type type_;
  std::vector<JsonField> fields_;
  std::shared_ptr<const JsonShape> each_;
};

/// Member of an object. The object may have other members.
struct JsonField {
  std::string key;
  JsonShape shape;
  bool required = false;
};

/// Reads a JSON file. Throws FileError `[what] file:line: ..` if the file is not JSON or has another shape.
[[nodiscard]] nlohmann::ordered_json load_json(const std::string& file, const std::string& what,
                                               const JsonShape& shape);

}  // namespace fq::detail
