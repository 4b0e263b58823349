#pragma once

/// Weights as an engine's own quantizer makes codes of them.

#include "fakequant/core/quantized.h"
#include "fakequant/layers/quantizer/quant_params.h"

namespace fq::detail {

/// Whether the grid has a rounding of its own, which `engine_codes` does.
[[nodiscard]] bool has_own_codes(EngineGrid grid) noexcept;
/// The codes of x [N, K] in blocks of 32, with f16 steps, which may be negative, by Q4_0's or Q8_0's rule
/// (reference/ggml.h); every gradient passes. `extreme_codes` are those of WeightCodes. Throws ArgumentError
/// for another shape and NumericError for a NaN or an infinity, both naming the quantizer.
[[nodiscard]] QuantizedTensor engine_codes(const Tensor& x, const QuantParams& params,
                                           const Tensor& extreme_codes);

/// Whether codes are made here rather than by rounding to the grid of a range: by an engine's rule, or of the
/// sign of binary weights.
[[nodiscard]] bool has_own_codes(const QuantParams& params) noexcept;
/// Those codes: `engine_codes`, or `binary_codes`.
[[nodiscard]] QuantizedTensor own_codes(const Tensor& x, const QuantParams& params,
                                        const Tensor& extreme_codes);

/// "none", "q4_0", ..; the second throws ArgumentError for another name.
[[nodiscard]] std::string_view engine_grid_name(EngineGrid grid) noexcept;
[[nodiscard]] EngineGrid engine_grid_from_name(std::string_view name);

}  // namespace fq::detail
