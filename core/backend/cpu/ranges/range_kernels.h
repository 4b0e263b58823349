#pragma once

/// Extremes of stretches of floats, for every vector instruction set.

#include <cstdint>

namespace fq::cpu {

struct Extremes {
  std::int32_t magnitude = 0;  ///< the largest |x| as bits: a NaN is larger than everything and is found
  float minimum = 0;           ///< unspecified when there is a NaN
};

/// In one pass; `count` at least 1.
[[nodiscard]] Extremes extremes(const float* x, std::int64_t count);
/// out[i] = max(out[i], |x[i]| as bits).
void raise_magnitudes(const float* x, std::int64_t count, std::int32_t* out);

/// out[k] = the largest |x| of the k-th `length` elements, as bits; a multiple of 16.
void block_magnitudes(const float* x, std::int64_t blocks, std::int64_t length, std::int32_t* out);
/// The same of the columns of tiles of rows by columns that follow each other; `columns` a multiple of 16.
void column_magnitudes(const float* x, std::int64_t tiles, std::int64_t rows, std::int64_t columns,
                       std::int32_t* out);

}  // namespace fq::cpu
