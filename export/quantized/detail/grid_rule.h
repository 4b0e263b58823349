#pragma once

/// Rules of a quantization config for the grids of a file.

#include <nlohmann/json.hpp>
#include <string>

#include "fakequant/core/format.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// {"pattern": quantizer, "enable": true, ..} with the fields that say the format; one range.
[[nodiscard]] nlohmann::ordered_json grid_rule(const std::string& quantizer, const Format& format);
/// The rule that comes first: what the file does not name is off.
[[nodiscard]] nlohmann::ordered_json all_off();
/// A format of signed integers without its lowest code, where no code is that; else itself.
[[nodiscard]] Format narrowed(const Format& format, const Tensor& codes);

}  // namespace fq::detail
