#pragma once

/// The named quantization configs: presets of fakequant and constants of ModelOpt.

#include <string>
#include <string_view>
#include <vector>

#include "fakequant/layers/config/quant_config.h"

namespace fq::detail {

/// Returns the rules of a preset, or of a ModelOpt constant. The rules apply to the quantizers that `within`
/// covers, a pattern that ends in `*`.
///
/// Throws ArgumentError for an unknown name with the nearest presets, and for a constant that needs an
/// unavailable feature with that feature. Also throws it for a pattern without `*` at the end, and for a
/// constant of a part of a network unless `within` is "*".
[[nodiscard]] std::vector<QuantRule> preset_rules(std::string_view name, const std::string& within = "*");
/// Returns the rules of a preset, its target and the name of its algorithm on weights. Throws as
/// `preset_rules`.
[[nodiscard]] QuantConfig preset_config(std::string_view name);
[[nodiscard]] std::vector<std::string> preset_names();

}  // namespace fq::detail
