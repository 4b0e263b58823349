#pragma once

/// Additions of codes, sums of pixels and averages to codes, and their floats, for every vector instruction
/// set, chosen when the program runs.
///
/// Any number of elements; results have the bits of the scalar formulas. A mask starts on a byte and may be
/// null; the unused bits of its last byte become 0.

#include "fakequant/core/backend/cpu/codes/code_kernels.h"
#include "fakequant/core/numerics/detail/grid_numbers.h"

namespace fq::cpu {

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
