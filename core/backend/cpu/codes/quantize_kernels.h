#pragma once

/// Floats to 8-bit codes, for every vector instruction set, chosen when the program runs.
///
/// Each works on whole groups of lanes from the front and returns how many elements it did, a multiple of 8:
/// the caller does the rest one by one. Results have the bits of the scalar formulas. `mask` starts on a byte
/// and may be null.

#include <cstdint>
#include <vector>

#include "fakequant/core/backend/cpu/codes/code_kernels.h"
#include "fakequant/core/numerics/detail/grid_numbers.h"

namespace fq::cpu {

using detail::GridRow;

/// Codes of floats; a NaN has code 0, mask 0 and sets `*nan`.
std::int64_t quantize(const float* x, std::int64_t count, const GridRow& row, std::int8_t* codes,
                      std::uint8_t* mask, bool* nan);
std::int64_t quantize(const float* x, std::int64_t count, const GridRow& row, std::uint8_t* codes,
                      std::uint8_t* mask, bool* nan);
std::int64_t quantize(const float* x, std::int64_t count, const GridRow& row, E4m3* codes, std::uint8_t* mask,
                      bool* nan);
/// For tests: the instruction sets that were compiled and that this processor has; and a restriction to one
/// of them, 0 for none.
[[nodiscard]] std::vector<std::int64_t> vector_targets();
void use_vector_target(std::int64_t target);

/// Ranges and scales with the bits of range_and_scale. Whether all were ranges, finite and not negative:
/// others stay, their scales are any numbers.
[[nodiscard]] bool range_scales(const detail::ScaleRule& rule, float* ranges, std::int64_t count,
                                float* scales);

}  // namespace fq::cpu
