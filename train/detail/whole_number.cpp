#include "fakequant/train/detail/whole_number.h"

#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"

namespace fq::detail {

std::int64_t whole_number(const nlohmann::json& value, std::string_view name, std::string_view function,
                          std::int64_t least) {
  const bool small =
      value.is_number_unsigned() ? value.get<std::uint64_t>() <= kMostCounted : value.is_number_integer();
  FQ_CHECK(small && value.get<std::int64_t>() >= least, function,
           "the attribute '{}' is {}: a state holds a whole number from {} to {} there", name, value.dump(),
           least, kMostCounted);
  return value.get<std::int64_t>();
}

std::int64_t whole_number(const StateDict& state, std::string_view name, std::string_view function,
                          std::int64_t least) {
  return whole_number(state.attribute(name), name, function, least);
}

std::uint64_t seed_number(const StateDict& state, std::string_view function) {
  const auto& value = state.attribute("seed");
  FQ_CHECK(value.is_number_unsigned() || (value.is_number_integer() && value.get<std::int64_t>() >= 0),
           function, "the attribute 'seed' is {}: a state holds a whole number from 0 there", value.dump());
  return value.get<std::uint64_t>();
}

}  // namespace fq::detail
