#pragma once

/// The named quantization configs, ours and ModelOpt's.

#include <string>
#include <string_view>
#include <vector>

#include "fakequant/layers/config/quant_config.h"

namespace fq::detail {

/// Rules of a preset, or of a constant of ModelOpt. Throws ArgumentError naming the nearest ones; for a
/// constant whose algorithm or subject is not available, saying so. With `within`, a pattern that ends in
/// `*`, only for quantizers that it covers. Then throws also for another
/// pattern, and for a constant that is for a part of a network.
[[nodiscard]] std::vector<QuantRule> preset_rules(std::string_view name, const std::string& within = "*");
/// Returns the rules of a preset, its target and the name of its algorithm on weights. Throws as
/// `preset_rules`.
[[nodiscard]] QuantConfig preset_config(std::string_view name);
[[nodiscard]] std::vector<std::string> preset_names();

}  // namespace fq::detail
