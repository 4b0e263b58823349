#pragma once

/// Extremes of float arrays and counts of bins, for every vector instruction set.

#include <cstddef>
#include <cstdint>

#include "fakequant/core/backend/ranges.h"

namespace fq::cpu {

struct Extremes {
  std::int32_t magnitude = 0;  ///< largest |x| as bits: NaN is larger than all other values and stays visible
  float minimum = 0;           ///< unspecified if there is a NaN
};

/// Computes both in one pass. `count` is at least 1.
[[nodiscard]] Extremes extremes(const float* x, std::int64_t count);
/// Computes out[i] = max(out[i], |x[i]| as bits).
void raise_magnitudes(const float* x, std::int64_t count, std::int32_t* out);

/// Computes out[k] = the largest |x| of the k-th `length` elements, as bits. `length` is a multiple of 16.
void block_magnitudes(const float* x, std::int64_t blocks, std::int64_t length, std::int32_t* out);
/// Computes the same for columns of consecutive tiles of rows by columns. `columns` is a multiple of 16.
void column_magnitudes(const float* x, std::int64_t tiles, std::int64_t rows, std::int64_t columns,
                       std::int32_t* out);

using detail::BinRule;

/// Number of interleaved tables, which avoids waiting for equal neighbours: element i is counted in
/// tables[kTables * bin + i % kTables]. The bin after the last one counts dropped elements.
inline constexpr std::size_t kTables = 4;
/// Number of elements that 16-bit counters can hold.
inline constexpr std::size_t kFullTables = kTables * 65535;

/// Counts `count` elements. `tables` has kTables * (bins + 1) counters.
void count_into(const float* x, std::size_t count, const BinRule& rule, std::size_t bins,
                std::uint16_t* tables);

}  // namespace fq::cpu
