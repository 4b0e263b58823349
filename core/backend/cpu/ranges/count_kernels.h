#pragma once

/// Finding bins and counting into tables, for every vector instruction set.

#include <cstddef>
#include <cstdint>
#include <limits>

namespace fq::cpu {

/// |x| belongs to bin min(int(fl(fl(|x| * factor) / divisor)), bins - 1), unless it is above `top`, or a zero
/// that is skipped.
struct BinRule {
  float factor = 1;
  float divisor = 1;
  float top = 0;
  bool skip_zeros = false;

  /// The smallest magnitude that counts.
  [[nodiscard]] float lowest() const { return skip_zeros ? std::numeric_limits<float>::denorm_min() : 0.0f; }
};

/// Tables are interleaved, so that equal neighbours do not wait for each other: element i counts in
/// tables[kTables * bin + i % kTables]. After the last bin comes one for what is dropped.
inline constexpr std::size_t kTables = 4;
/// So many elements fit 16-bit counters.
inline constexpr std::size_t kFullTables = kTables * 65535;

/// `count` elements, `tables` of kTables * (bins + 1) counters.
void count_into(const float* x, std::size_t count, const BinRule& rule, std::size_t bins,
                std::uint16_t* tables);

}  // namespace fq::cpu
