#include "fakequant/train/data/reader/tokenizer/json_fields.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq::detail {

using nlohmann::json;

const json& member(const json& object, const char* name, std::string_view where) {
  FQ_CHECK(object.is_object() && object.contains(name), "tokenizer", "{} has no \"{}\"", where, name);
  return object[name];
}

std::string text_of(const json& object, const char* name, std::string_view where) {
  const json& value = member(object, name, where);
  FQ_CHECK(value.is_string(), "tokenizer", "\"{}\" of {} is no text", name, where);
  return value.get<std::string>();
}

std::string type_of(const json& object, std::string_view where, const std::vector<std::string>& known) {
  const std::string type = text_of(object, "type", where);
  FQ_CHECK(std::ranges::find(known, type) != known.end(), "tokenizer",
           "the {} is of the type '{}': those of {} are read", where, printable(type.substr(0, 80)),
           fmt::join(known, ", "));
  return type;
}

bool flag_of(const json& object, const char* name, bool fallback) {
  if (!object.is_object() || !object.contains(name) || object[name].is_null()) return fallback;
  FQ_CHECK(object[name].is_boolean(), "tokenizer", "\"{}\" is {}: give true or false", name,
           object[name].type_name());
  return object[name].get<bool>();
}

std::int32_t id_of(const json& value, std::string_view where) {
  constexpr auto most = std::numeric_limits<std::int32_t>::max();
  const auto id = detail::whole_if<std::int32_t>(value, 0, most);
  FQ_CHECK(id, "tokenizer", "the id of {} is no whole number from 0 to {}", where, most);
  return *id;
}

Metaspace metaspace_of(const json& step) {
  Metaspace how{step.contains("replacement") ? text_of(step, "replacement", "Metaspace") : "\u2581",
                "always"};
  FQ_CHECK(!how.mark.empty() && first_character(how.mark).bytes.size() == how.mark.size(), "tokenizer",
           "\"replacement\" of Metaspace is '{}': one character is needed",
           printable(how.mark.substr(0, 80)));
  if (step.contains("prepend_scheme"))
    how.scheme = text_of(step, "prepend_scheme", "Metaspace");
  else if (!flag_of(step, "add_prefix_space", true))
    how.scheme = "never";
  FQ_CHECK(how.scheme == "always" || how.scheme == "first" || how.scheme == "never", "tokenizer",
           "\"prepend_scheme\" of Metaspace is '{}': those read are always, first and never",
           printable(how.scheme.substr(0, 80)));
  return how;
}

}  // namespace fq::detail
