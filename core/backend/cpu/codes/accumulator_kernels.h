#pragma once

/// Sums of products to 8-bit codes, and to floats, for every vector instruction set, chosen when the program
/// runs.
///
/// Each works on whole groups of lanes from the front and returns how many elements it did: the caller does
/// the rest one by one. Results have the bits of the scalar formulas.

#include <cstdint>

#include "fakequant/core/backend/cpu/codes/code_kernels.h"
#include "fakequant/core/numerics/detail/grid_numbers.h"

namespace fq::cpu {

/// The value of a sum A: fl(A) * scale or, with `shift`, fma(A, scale, shift).
struct SumValues {
  const std::int32_t* bias;  ///< in A; may be null
  const float* scale;
  const float* shift;  ///< null for products

  /// Returns the numbers of the channels from `channel` on.
  [[nodiscard]] SumValues at(std::int64_t channel) const {
    return {bias != nullptr ? bias + channel : nullptr, scale + channel,
            shift != nullptr ? shift + channel : nullptr};
  }
};

/// The position of its code: fl(A) * multiplier or, with `offset`, fma(A, multiplier, offset). All pointers
/// are to the numbers of one channel, or of `width` channels innermost, which repeat.
struct SumGrid {
  SumValues values;
  const float* multiplier;  ///< scale / s_y
  const float* offset;      ///< shift / s_y; null for products
  std::int64_t width;       ///< a multiple of 16; 0 for one channel
  detail::SumReader reader;
};

/// Codes of sums; the mask, which starts on a byte and may be null, is on the float value of the sum. The
/// result is a multiple of 8.
[[nodiscard]] std::int64_t requantize(const std::int32_t* sums, std::int64_t count, const SumGrid& grid,
                                      std::int8_t* codes, std::uint8_t* mask);
[[nodiscard]] std::int64_t requantize(const std::int32_t* sums, std::int64_t count, const SumGrid& grid,
                                      std::uint8_t* codes, std::uint8_t* mask);
/// Floats of sums of one channel, or of consecutive channels where `innermost`: then the pointers advance.
[[nodiscard]] std::int64_t sum_values(const std::int32_t* sums, std::int64_t count, const SumValues& values,
                                      bool innermost, float* y);

// Codes of additions, pooled sums and averages, and the floats of additions. These functions take any number
// of elements.
//
// Results have the bits of the scalar formulas. A mask starts on a byte and may be null. The unused bits of
// its last byte become 0.

using detail::AdditionGrid;
using detail::SumReader;

/// Where codes go: i8, u8, i16 or i32, and their mask.
struct CodesOut {
  void* codes;
  DType dtype;
  std::uint8_t* mask;
};

/// Codes of a + b; the mask is on fl(fl(a*s_a) + fl(b*s_b)).
void requantize_addition(const CodeArray& a, const CodeArray& b, std::int64_t count, const AdditionGrid& grid,
                         const SumReader& reader, const CodesOut& out);
/// Codes of sums by one multiply; the mask is on fl(sum * scale).
void requantize_sums(const std::int32_t* sums, std::int64_t count, float multiplier, float scale,
                     const SumReader& reader, const CodesOut& out);
/// Codes of floats by a division and the offset of the file; the mask is on the floats.
void requantize_averages(const float* values, std::int64_t count, float scale, float offset,
                         const SumReader& reader, const CodesOut& out);

/// y = fl(fl(a*s_a) + fl(b*s_b))
void addition_values(const CodeArray& a, const CodeArray& b, std::int64_t count, float scale_a, float scale_b,
                     float* y);
/// v = max(v, 0), a NaN to 0, in place; the mask is v > 0.
void relu(float* values, std::int64_t count, std::uint8_t* mask);

}  // namespace fq::cpu
