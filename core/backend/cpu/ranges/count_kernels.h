#pragma once

/// Finding bins and counting into tables, for every vector instruction set.

#include <cstddef>
#include <cstdint>

#include "fakequant/core/backend/ranges.h"

namespace fq::cpu {

using detail::BinRule;

/// Tables are interleaved, so that equal neighbours do not wait for each other: element i counts in
/// tables[kTables * bin + i % kTables]. After the last bin comes one for what is dropped.
inline constexpr std::size_t kTables = 4;
/// So many elements fit 16-bit counters.
inline constexpr std::size_t kFullTables = kTables * 65535;

/// `count` elements, `tables` of kTables * (bins + 1) counters.
void count_into(const float* x, std::size_t count, const BinRule& rule, std::size_t bins,
                std::uint16_t* tables);

}  // namespace fq::cpu
