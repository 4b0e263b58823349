#pragma once

/// Merges the rules of a quantization config into the parameters of one quantizer.

#include <string>
#include <vector>

#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/quantizer/quant_params.h"

namespace fq::detail {

/// The parameters that rules give to one quantizer.
struct MergedRules {
  PartialQuantParams all = {};      ///< fields of all rules
  PartialQuantParams by_user = {};  ///< fields of the user's rules
  std::string place = {};           ///< place of the last rule: QuantRule::place

  /// Whether a rule enables the quantizer. Without a rule it is disabled.
  [[nodiscard]] bool is_enabled() const noexcept { return all.enable.value_or(false); }
  [[nodiscard]] bool has_blocks() const noexcept { return all.block_sizes && all.block_sizes->has_value(); }
};

/// Merges the rules whose pattern matches one of the paths of a quantizer, in a module of type `module`. Sets
/// `matched` of each rule whose pattern matches.
[[nodiscard]] MergedRules merge_rules(const QuantConfig& config, const std::string& module,
                                      const std::vector<std::string>& paths, std::vector<bool>& matched);

/// Sets the given fields in `params`. A null field sets the default. Throws ArgumentError for fields that do
/// not fit each other, and for a sequence, which is more than one quantizer.
void apply(const PartialQuantParams& fields, QuantParams& params);

}  // namespace fq::detail
