#pragma once

/// Rules of a quantization config: as it is written, and merged for one quantizer.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fakequant/layers/config/quant_config.h"

namespace fq::detail {

/// Adds a rule behind those that the config has, if any.
void append_rule(nlohmann::ordered_json& config, nlohmann::ordered_json rule);

/// The fields that rules give to a quantizer, which of them a user gave, and the place of the last rule.
struct MergedFields {
  QuantFields all = {}, by_user = {};
  std::string place = {};

  /// Whether a rule switches the quantizer on; without one it is off.
  [[nodiscard]] bool switched_on() const noexcept { return all.enable.value_or(false); }
  [[nodiscard]] bool has_blocks() const noexcept { return all.block_sizes && all.block_sizes->has_value(); }
};

/// Those of a quantizer with these paths in a module of that type; marks in `matched` the rules whose pattern
/// covers one of the paths.
[[nodiscard]] MergedFields fields_for(const QuantConfig& config, const std::string& module,
                                      const std::vector<std::string>& paths, std::vector<bool>& matched);

}  // namespace fq::detail
