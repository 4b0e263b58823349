#pragma once

/// Quantization of floats to 8-bit codes, compiled for every vector instruction set and selected at run time.
///
/// Each function processes whole groups of lanes from the front and returns the number of processed elements,
/// a multiple of 8. The caller processes the rest one by one. Results have the bits of the scalar formulas.
/// `mask` starts on a byte and may be null.

#include <cstdint>
#include <vector>

#include "fakequant/core/backend/cpu/codes/code_kernels.h"
#include "fakequant/core/numerics/detail/grid_numbers.h"

namespace fq::cpu {

using detail::GridRow;

/// Quantizes floats. NaN gets code 0 and mask 0, and sets `*nan`.
std::int64_t quantize(const float* x, std::int64_t count, const GridRow& row, std::int8_t* codes,
                      std::uint8_t* mask, bool* nan);
std::int64_t quantize(const float* x, std::int64_t count, const GridRow& row, std::uint8_t* codes,
                      std::uint8_t* mask, bool* nan);
std::int64_t quantize(const float* x, std::int64_t count, const GridRow& row, E4m3* codes, std::uint8_t* mask,
                      bool* nan);
/// For tests: returns the instruction sets that were compiled and that this processor supports.
/// `use_vector_target` restricts the choice to one of them, 0 for no restriction.
[[nodiscard]] std::vector<std::int64_t> vector_targets();
void use_vector_target(std::int64_t target);

/// Computes ranges and scales with the bits of range_and_scale. Returns whether all ranges are finite and not
/// negative. Other ranges are unchanged and their scales unspecified.
[[nodiscard]] bool range_scales(const detail::ScaleRule& rule, float* ranges, std::int64_t count,
                                float* scales);

}  // namespace fq::cpu
