#pragma once

/// Grids of a file: their rules in a quantization config, and the values of their codes.

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
/// Returns a format of signed integers without its lowest code if no code is the lowest. Returns other
/// formats unchanged.
[[nodiscard]] Format narrowed(const Format& format, const Tensor& codes);

/// fl(code * scale) of codes as f32 in row-major order. `scale` is f32: one number, or one for each block of
/// `by`, row-major. Throws ArgumentError for another count, and where `by` does not fit the shape.
[[nodiscard]] Tensor scaled_codes(const Tensor& codes, const Tensor& scale, const Granularity& by);

/// The same where scales are powers of two that follow from the largest magnitude m of a block, 2^ceil(log2(m
/// / bound)). Where m was rounded down, to half of `bound`, the numbers of that code become larger by 2^-7 of
/// it: they have the same code, and make the same scale again.
[[nodiscard]] Tensor scaled_mx_codes(const Tensor& codes, const Tensor& scale, const Granularity& by,
                                     float bound);

}  // namespace fq::detail
