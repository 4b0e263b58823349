#pragma once

/// Matrices of rows (pixels) by channels, channels innermost, seen as runs: the channels side by side so
/// often that inner loops are long, need no rest and start on bytes of a mask.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "fakequant/core/blocks/detail/parallel_for.h"

namespace fq::cpu {

/// Elements of a run: a multiple of 16 and of `channels`, 128 or more.
inline std::int64_t run_width(std::int64_t channels) {
  const std::int64_t whole = std::lcm(std::max<std::int64_t>(channels, 1), std::int64_t{16});
  return whole * std::max<std::int64_t>(1, 128 / whole);
}

/// The values of the channels, repeated to the width of a run.
template <class T, class From>
[[nodiscard]] std::vector<T> repeated(const From* values, std::int64_t channels) {
  std::vector<T> out(static_cast<std::size_t>(run_width(channels)));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<T>(values[i % static_cast<std::size_t>(channels)]);
  return out;
}

/// Blocks of whole runs whose size depends on the number of channels only; the last run may be partial.
struct RunBlocks {
  std::int64_t elements, width, size, count;

  RunBlocks(std::int64_t all, std::int64_t channels)
      : elements(all),
        width(run_width(channels)),
        size(width * std::max<std::int64_t>(1, 16384 / width)),
        count((all + size - 1) / size) {}
  [[nodiscard]] std::int64_t begin(std::int64_t block) const { return block * size; }
  [[nodiscard]] std::int64_t end(std::int64_t block) const { return std::min(elements, (block + 1) * size); }
};

/// f(begin, end) for every block, in parallel.
template <class F>
void for_blocks(const RunBlocks& blocks, F&& f) {
  detail::parallel_for(blocks.count, blocks.count > 2,
                       [&](std::int64_t b) { f(blocks.begin(b), blocks.end(b)); });
}

}  // namespace fq::cpu
