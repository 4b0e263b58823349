#include "fakequant/report/detail/runs/json_shape.h"

#include <fmt/format.h>

namespace fq::detail {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kShownOfShape = 60;  // characters of a value in a message

std::string shown_type(const ordered_json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  const std::string text = value.dump(-1, ' ', true, ordered_json::error_handler_t::replace);
  return text.size() <= kShownOfShape ? text : text.substr(0, kShownOfShape) + "..";
}

}  // namespace

JsonShape::JsonShape(Type type) : type_(type) {}

JsonShape JsonShape::any() { return JsonShape(Type::any); }
JsonShape JsonShape::text() { return JsonShape(Type::text); }
JsonShape JsonShape::flag() { return JsonShape(Type::flag); }
JsonShape JsonShape::whole() { return JsonShape(Type::whole); }
JsonShape JsonShape::number() { return JsonShape(Type::number); }

JsonShape JsonShape::object(std::vector<JsonField> fields) {
  JsonShape out(Type::object);
  out.fields_ = std::move(fields);
  return out;
}

JsonShape JsonShape::uniform_object(JsonShape each) {
  JsonShape out(Type::object);
  out.each_ = std::make_shared<const JsonShape>(std::move(each));
  return out;
}

JsonShape JsonShape::list(JsonShape each) {
  JsonShape out(Type::list);
  out.each_ = std::make_shared<const JsonShape>(std::move(each));
  return out;
}

// Checks the type of the value alone. `mismatch` checks its members.
bool JsonShape::fits(const ordered_json& value) const {
  switch (type_) {
    case Type::any:
      return true;
    case Type::text:
      return value.is_string();
    case Type::flag:
      return value.is_boolean();
    case Type::whole:
      return whole_if<std::int64_t>(value).has_value();
    case Type::number:
      // JSON has no NaN: a metric that is not finite is written as null.
      return value.is_number() || value.is_null();
    case Type::object:
      return value.is_object();
    case Type::list:
      return value.is_array();
  }
  return false;
}

// Returns the JSON pointer and the problem of the first value that does not fit. Other keys are allowed: a
// shape lists only the keys that readers use.
std::optional<std::pair<std::string, std::string>> JsonShape::mismatch(const ordered_json& value,
                                                                       const std::string& pointer) const {
  // In the order of JsonShape::Type.
  static constexpr const char* kNeeded[] = {"any value", "a text",    "true or false", "a whole number",
                                            "a number",  "an object", "a list"};
  if (!fits(value))
    return std::pair(pointer, fmt::format("'{}' is {}, {} is needed: the file is damaged",
                                          pointer.empty() ? "/" : pointer.substr(1), shown_type(value),
                                          kNeeded[static_cast<std::size_t>(type_)]));
  for (const auto& [key, shape, required] : fields_) {
    const auto found = value.find(key);
    if (found == value.end() && required)
      return std::pair(pointer, fmt::format("the key '{}' is missing{}: the file is damaged", key,
                                            pointer.empty() ? "" : " in '" + pointer.substr(1) + "'"));
    if (found == value.end()) continue;
    if (auto wrong = shape.mismatch(*found, pointer + "/" + json_pointer_token(key))) return wrong;
  }
  if (!each_) return std::nullopt;
  for (const auto& [key, member] : value.items())
    if (auto wrong = each_->mismatch(member, pointer + "/" + json_pointer_token(key))) return wrong;
  return std::nullopt;
}

ordered_json load_json(const std::string& file, const std::string& what, const JsonShape& shape) {
  const auto text = JsonText::load(file, what);
  if (const auto wrong = shape.mismatch(text->value())) text->fail(wrong->first, wrong->second);
  return text->value();
}

}  // namespace fq::detail
