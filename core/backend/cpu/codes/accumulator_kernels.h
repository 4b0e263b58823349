#pragma once

/// Conversion of product sums to 8-bit codes and to floats, compiled for every vector instruction set and
/// selected at run time.
///
/// Each function processes whole groups of lanes from the front and returns the number of processed elements.
/// The caller processes the rest one by one. Results have the bits of the scalar formulas.

#include <cstdint>

#include "fakequant/core/backend/cpu/codes/code_kernels.h"
#include "fakequant/core/numerics/detail/grid_numbers.h"

namespace fq::cpu {

/// Per-channel numbers for the value of a sum A: fl(A) * scale or, with `shift`, fma(A, scale, shift).
struct SumValues {
  const std::int32_t* bias;  ///< added to A; may be null
  const float* scale;
  const float* shift;  ///< null for products

  /// Returns the numbers of the channels beginning with `channel`.
  [[nodiscard]] SumValues at(std::int64_t channel) const {
    return {bias != nullptr ? bias + channel : nullptr, scale + channel,
            shift != nullptr ? shift + channel : nullptr};
  }
};

/// Per-channel numbers for the code position of a sum A: fl(A) * multiplier or, with `offset`, fma(A,
/// multiplier, offset). All pointers have the numbers of one channel, or of `width` innermost channels, which
/// repeat.
struct SumGrid {
  SumValues values;
  const float* multiplier;  ///< scale / s_y
  const float* offset;      ///< shift / s_y; null for products
  std::int64_t width;       ///< a multiple of 16; 0 for one channel
  detail::SumReader reader;
};

/// Quantizes sums. The mask, which starts on a byte and may be null, refers to the float value of the sum.
/// Returns a multiple of 8.
[[nodiscard]] std::int64_t requantize(const std::int32_t* sums, std::int64_t count, const SumGrid& grid,
                                      std::int8_t* codes, std::uint8_t* mask);
[[nodiscard]] std::int64_t requantize(const std::int32_t* sums, std::int64_t count, const SumGrid& grid,
                                      std::uint8_t* codes, std::uint8_t* mask);
/// Converts sums of one channel to floats, or, with `innermost`, sums of consecutive channels: the pointers
/// then advance.
[[nodiscard]] std::int64_t sum_values(const std::int32_t* sums, std::int64_t count, const SumValues& values,
                                      bool innermost, float* y);

// Codes of additions, pooled sums and averages, and floats of additions. These functions process any number
// of elements.
//
// Results have the bits of the scalar formulas. A mask starts on a byte and may be null. The unused bits of
// its last byte become 0.

using detail::AdditionGrid;
using detail::SumReader;

/// Destination of codes: i8, u8, i16 or i32, and their mask.
struct CodesOut {
  void* codes;
  DType dtype;
  std::uint8_t* mask;
};

/// Quantizes a + b. The mask refers to fl(fl(a*s_a) + fl(b*s_b)).
void requantize_addition(const CodeArray& a, const CodeArray& b, std::int64_t count, const AdditionGrid& grid,
                         const SumReader& reader, const CodesOut& out);
/// Quantizes sums with one multiplication. The mask refers to fl(sum * scale).
void requantize_sums(const std::int32_t* sums, std::int64_t count, float multiplier, float scale,
                     const SumReader& reader, const CodesOut& out);
/// Quantizes floats with a division and `offset`, the zero point in exported files. The mask refers to the
/// floats.
void requantize_averages(const float* values, std::int64_t count, float scale, float offset,
                         const SumReader& reader, const CodesOut& out);

/// Computes y = fl(fl(a*s_a) + fl(b*s_b)).
void addition_values(const CodeArray& a, const CodeArray& b, std::int64_t count, float scale_a, float scale_b,
                     float* y);
/// Computes v = max(v, 0) in place; NaN becomes 0. The mask is v > 0.
void relu(float* values, std::int64_t count, std::uint8_t* mask);

}  // namespace fq::cpu
