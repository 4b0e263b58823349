#pragma once

/// The object `algorithm` of a quantization config.

#include <nlohmann/json_fwd.hpp>

#include "fakequant/layers/config/quant_config.h"

namespace fq::detail {

/// Puts the options, rules and adjustments of `input["algorithm"]` into `config`, where it is an object.
/// Throws ArgumentError naming the key.
void read_calibration(const nlohmann::ordered_json& input, QuantConfig& config);

}  // namespace fq::detail
