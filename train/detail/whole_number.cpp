#include "fakequant/train/detail/whole_number.h"

#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq::detail {

std::int64_t whole_number(const nlohmann::json& value, std::string_view name, std::string_view function,
                          std::int64_t least) {
  const auto whole = whole_if<std::int64_t>(value, least, kMostCounted);
  FQ_CHECK(whole, function, "the attribute '{}' is {}: expected a whole number from {} to {}", name,
           value.dump(), least, kMostCounted);
  return *whole;
}

std::int64_t whole_number(const StateDict& state, std::string_view name, std::string_view function,
                          std::int64_t least) {
  return whole_number(state.attribute(name), name, function, least);
}

std::uint64_t seed_number(const StateDict& state, std::string_view function) {
  const auto& value = state.attribute("seed");
  const auto whole = whole_if<std::uint64_t>(value);
  FQ_CHECK(whole, function, "the attribute 'seed' is {}: expected a whole number from 0", value.dump());
  return *whole;
}

}  // namespace fq::detail
