#pragma once

/// Grids of a file: rules of a quantization config, and values of codes.

#include <nlohmann/json.hpp>
#include <string>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/format.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// Returns the rule {"pattern": quantizer, "enable": true, ..} with the fields of the format and one range.
[[nodiscard]] nlohmann::ordered_json grid_rule(const std::string& quantizer, const Format& format);
/// Returns the first rule, which disables all quantizers.
[[nodiscard]] nlohmann::ordered_json all_off();
/// Returns a signed integer format without its lowest code if no code uses it. Returns other formats
/// unchanged.
[[nodiscard]] Format narrowed(const Format& format, const Tensor& codes);

/// Returns fl(code * scale) of f32 codes in row-major order. `scale` is f32: one number, or one per block of
/// `by`, row-major. Throws ArgumentError for another count, and if `by` does not fit the shape.
[[nodiscard]] Tensor scaled_codes(const Tensor& codes, const Tensor& scale, const Granularity& by);

/// Returns the same for power-of-two scales that follow from the largest magnitude m of a block,
/// 2^ceil(log2(m / bound)). If m was rounded down to half of `bound`, multiplies the values of that code by 1
/// + 2^-7. They keep their code, and give the same scale again.
[[nodiscard]] Tensor scaled_mx_codes(const Tensor& codes, const Tensor& scale, const Granularity& by,
                                     float bound);

}  // namespace fq::detail
