#pragma once

/// The types that a JSON file of this program has: checked once where it is read, so that nothing fails
/// later.

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
  static JsonShape number();  ///< or null, as NaN is written
  static JsonShape object(std::vector<JsonField> fields = {});
  static JsonShape object_of(JsonShape each);  ///< every member is alike
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

/// A member of an object; others may be there.
struct JsonField {
  std::string key;
  JsonShape shape;
  bool required = false;
};

/// The value of a file. Throws FileError `[what] file:line: ..` for a file that is not JSON or of another
/// shape.
[[nodiscard]] nlohmann::ordered_json load_json(const std::string& file, const std::string& what,
                                               const JsonShape& shape);

}  // namespace fq::detail
