#pragma once

/// The loops of fake quantization, float to float with a packed mask, for every vector instruction set,
/// chosen when the program runs. Results have the bits of the scalar formulas.

#include <cstdint>

#include "fakequant/core/dtype.h"
#include "fakequant/core/numerics/detail/grid_numbers.h"

namespace fq::cpu {

/// Consecutive elements and which parameters they meet.
struct Stretch {
  const void* x;
  /// Output, of x's type; may be x.
  void* y;
  /// Starts on a byte, may be null; bits after the last element in its last byte become 0.
  std::uint8_t* mask;
  std::int64_t count;
  /// Elements a parameter: `count`, a multiple of vector_group(), or 0: each has its own.
  std::int64_t shared;
  /// f32, f16 or bf16.
  DType dtype;
  /// y is not read soon: it is written past the caches, and x fetched `ahead` bytes before it is needed.
  bool beyond_cache;
  std::int64_t ahead = 2048;
  /// Number of elements after which per-element parameters repeat, a multiple of vector_group();
  /// 0 for never.
  std::int64_t period = 0;
};

/// Elements that arrays of parameters are padded to, with readable and writable floats.
[[nodiscard]] std::int64_t vector_group();
[[nodiscard]] inline std::int64_t padded(std::int64_t count) {
  return (count + vector_group() - 1) / vector_group() * vector_group();
}

/// Numbers of a range, an array each.
struct Columns {
  const float* scale = nullptr;
  const float* divisor = nullptr;
  const float* inverse = nullptr;
  const float* bound = nullptr;  ///< bound of |x|

  /// Applies f to every array.
  template <class F>
  [[nodiscard]] Columns map(F&& f) const {
    return {f(scale), f(divisor), f(inverse), f(bound)};
  }
};

/// ModelOpt's integer formula.
struct IntegerRows {
  Columns columns;
  float lower, upper;
  bool divide;  ///< some divisor needs a true division
};
/// Fills scale, divisor and inverse of `count` ranges; true when some divisor needs a true division.
bool integer_rows(const float* amax, std::int64_t count, float upper, bool guard, float* scale,
                  float* divisor, float* inverse);
void fake_quant(const Stretch& stretch, const IntegerRows& rows);

/// ModelOpt's E4M3 formula; no divisor.
struct E4m3Rows {
  Columns columns;
};
void e4m3_rows(const float* amax, std::int64_t count, float* scale, float* inverse);
void fake_quant(const Stretch& stretch, const E4m3Rows& rows);

/// ModelOpt's FP4 formula: scale, divisor and bound.
struct Fp4Rows {
  Columns columns;
};
void fake_quant(const Stretch& stretch, const Fp4Rows& rows);
/// nvfp4_scale of every amax, of arrays padded to whole groups.
void nvfp4_scales(const float* amax, std::int64_t count, float global, float* scale);

/// ModelOpt's formula of dynamic blocks: scale, inverse (which multiplies the rounded number) and bound.
struct BlockRows {
  Columns columns;
  detail::ElementGrid grid;
};
void fake_quant(const Stretch& stretch, const BlockRows& rows);
/// The largest |x| of every `block` elements, 8, 16, 32 or a multiple, NaN left out; `count` is a multiple.
void block_maxima(const void* x, DType dtype, std::int64_t count, std::int64_t block, float* maxima);

/// Rounding to integers lower .. upper.
struct IntegerCast {
  float lower, upper;
};
void fake_quant(const Stretch& stretch, const IntegerCast& cast);

}  // namespace fq::cpu
