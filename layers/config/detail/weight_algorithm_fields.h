#pragma once

/// The key `weight_algorithm` of a quantization config.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/layers/config/quant_config.h"

namespace fq::detail {

/// Names of algorithms on weights and scales, which train/ptq runs.
[[nodiscard]] const std::vector<std::string>& weight_algorithms();
[[nodiscard]] bool is_weight_algorithm(std::string_view name);

/// Puts `input["weight_algorithm"]` into `config`, or `input["algorithm"]` where that names one for weights:
/// there the keys of calibration are not its options, nor those of ModelOpt's that say how much is computed
/// at once (`block_size`, `max_co_batch_size`, ..). What else there is ptq::Algorithm judges. Throws
/// ArgumentError naming the key.
void read_weight_algorithm(const nlohmann::ordered_json& input, QuantConfig& config);
/// With the defaults that ModelOpt gives it.
void set_reference_algorithm(std::string_view name, QuantConfig& config);

}  // namespace fq::detail
