#pragma once

/// Extremes of stretches of floats and counts of bins, for every vector instruction set.

#include <cstddef>
#include <cstdint>

#include "fakequant/core/backend/ranges.h"

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

using detail::BinRule;

/// Tables are interleaved, so that equal neighbours do not wait for each other: element i counts in
/// tables[kTables * bin + i % kTables]. The bin after the last counts dropped elements.
inline constexpr std::size_t kTables = 4;
/// Number of elements that 16-bit counters can hold.
inline constexpr std::size_t kFullTables = kTables * 65535;

/// `count` elements, `tables` of kTables * (bins + 1) counters.
void count_into(const float* x, std::size_t count, const BinRule& rule, std::size_t bins,
                std::uint16_t* tables);

}  // namespace fq::cpu
