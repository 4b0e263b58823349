#pragma once

/// Members of tokenizer.json, checked. Each function throws ArgumentError, which names the member of `where`.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace fq::detail {

/// The member; throws where it is missing or `object` is no object.
[[nodiscard]] const nlohmann::json& member(const nlohmann::json& object, const char* name,
                                           std::string_view where);
/// A text.
[[nodiscard]] std::string text_of(const nlohmann::json& object, const char* name, std::string_view where);
/// Its "type", one of `known`; else the message names these.
[[nodiscard]] std::string type_of(const nlohmann::json& object, std::string_view where,
                                  const std::vector<std::string>& known);
/// true or false; `fallback` where it is missing or null.
[[nodiscard]] bool flag_of(const nlohmann::json& object, const char* name, bool fallback);
/// A whole number from 0 to 2^31 - 1.
[[nodiscard]] std::int32_t id_of(const nlohmann::json& value, std::string_view where);

/// How "Metaspace" writes blanks, before and after the token model.
struct Metaspace {
  std::string mark;    ///< in place of a blank
  std::string scheme;  ///< where one is put in front: "always", "first" of the text, or "never"
};
[[nodiscard]] Metaspace metaspace_of(const nlohmann::json& step);

}  // namespace fq::detail
