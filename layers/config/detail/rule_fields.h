#pragma once

/// Rules of a quantization config, merged for one quantizer.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fakequant/layers/config/quant_config.h"

namespace fq::detail {

/// The fields that rules give to a quantizer, and which of them a user gave.
struct Fields {
  nlohmann::json all = nlohmann::json::object();
  nlohmann::json by_user = nlohmann::json::object();
};

/// Those of a quantizer with these paths in a module of that type; marks in `matched` the rules whose pattern
/// covers one of the paths.
[[nodiscard]] Fields fields_for(const QuantConfig& config, const std::string& module,
                                const std::vector<std::string>& paths, std::vector<bool>& matched);
/// Throws ArgumentError when `enable` is no bool.
[[nodiscard]] bool switched_on(const Fields& fields);
[[nodiscard]] bool has_blocks(const nlohmann::json& fields);
[[nodiscard]] nlohmann::json without_nulls(nlohmann::json fields);

}  // namespace fq::detail
