#pragma once

/// The hot loops over 8-bit codes, for every vector instruction set, chosen when the program runs.
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

/// Sums of one channel, or of `width` channels innermost, which repeat. The value is fl(A) * scale, with
/// `shift` fma(A, scale, shift); the code's position fl(A) * multiplier or fma(A, multiplier, offset).
struct SumGrid {
  const std::int32_t* bias;  ///< may be null
  const float* multiplier;   ///< scale / s_y
  const float* scale;
  const float* offset;  ///< shift / s_y; null for none
  const float* shift;
  std::int64_t width;  ///< a multiple of 16; 0 for one channel
  bool open_below;     ///< the mask is 0 < v, not mask_lower <= v
  float lower, upper, amax, mask_lower;
};

/// Codes of floats; a NaN has code 0, mask 0 and sets `*nan`.
std::int64_t quantize(const float* x, std::int64_t count, const GridRow& row, std::int8_t* codes,
                      std::uint8_t* mask, bool* nan);
std::int64_t quantize(const float* x, std::int64_t count, const GridRow& row, std::uint8_t* codes,
                      std::uint8_t* mask, bool* nan);
std::int64_t quantize(const float* x, std::int64_t count, const GridRow& row, E4m3* codes, std::uint8_t* mask,
                      bool* nan);
/// Codes of sums; the mask is on the float value of the sum.
std::int64_t requantize(const std::int32_t* sums, std::int64_t count, const SumGrid& grid, std::int8_t* codes,
                        std::uint8_t* mask);
std::int64_t requantize(const std::int32_t* sums, std::int64_t count, const SumGrid& grid,
                        std::uint8_t* codes, std::uint8_t* mask);

/// For tests: the instruction sets that were compiled and that this processor has; and a restriction to one
/// of them, 0 for none.
[[nodiscard]] std::vector<std::int64_t> vector_targets();
void use_vector_target(std::int64_t target);

}  // namespace fq::cpu
