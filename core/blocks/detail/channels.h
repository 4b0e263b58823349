#pragma once

/// Parallel loops over elements and channels. Short loops run on the calling thread.

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "fakequant/core/blocks/detail/walk.h"

namespace fq::detail {

/// Calls f(i) for every i < count, in parallel if `much` is set. Otherwise it enters no OpenMP region: even
/// a region of one thread takes longer than a layer on one token.
template <class F>
void parallel_for(std::int64_t count, bool much, F&& f) {
  if (!much) {
    for (std::int64_t i = 0; i < count; ++i) f(i);
    return;
  }
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < count; ++i) f(i);
}

}  // namespace fq::detail

// The channels of a tensor in memory order: positions along one logical axis.

namespace fq::cpu {

/// Element i in memory order belongs to channel (i / inner) % channels.
struct Channels {
  std::int64_t channels = 1;
  std::int64_t inner = 1;

  /// Channels along `axis` of a tensor with this shape and layout. Axis -1 means one channel in total.
  static Channels of(const Shape& shape, Layout layout, int axis) {
    if (axis < 0) return {1, std::max<std::int64_t>(numel(shape), 1)};
    const AxisView view = detail::memory_view(shape, layout, axis);
    return {view.size, std::max<std::int64_t>(view.inner, 1)};
  }
  [[nodiscard]] std::int64_t at(std::int64_t i) const { return channels == 1 ? 0 : (i / inner) % channels; }
};

/// Calls f(begin, end, channel) for runs of elements of one channel, in memory order. Blocks of 4096
/// elements run in parallel, so that masks of different blocks share no byte.
template <class F>
void visit_runs(std::int64_t count, const Channels& view, F&& f) {
  constexpr std::int64_t block = 4096;
  const std::int64_t blocks = (count + block - 1) / block;
#pragma omp parallel for schedule(static) if (blocks > 16)
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t end = std::min(count, (b + 1) * block);
    for (std::int64_t i = b * block; i < end;) {
      const std::int64_t stop = view.channels == 1 ? end : std::min(end, (i / view.inner + 1) * view.inner);
      f(i, stop, view.at(i));
      i = stop;
    }
  }
}

/// Sets bit i of a mask in memory order. The bit must be 0 before.
inline void set_bit(std::uint8_t* mask, std::int64_t i, bool on) {
  mask[i >> 3] = static_cast<std::uint8_t>(mask[i >> 3] | (static_cast<unsigned>(on) << (i & 7)));
}
inline bool get_bit(const std::uint8_t* mask, std::int64_t i) {
  return ((mask[i >> 3] >> (i & 7)) & 1u) != 0;
}

// Matrices of rows (pixels) by channels, with channels innermost, processed in runs. A run repeats the
// channels until the inner loop is long, has no remainder and starts at a byte of the mask.

/// Number of elements of a run: a multiple of 16 and of `channels`, at least 128.
inline std::int64_t run_width(std::int64_t channels) {
  const std::int64_t whole = std::lcm(std::max<std::int64_t>(channels, 1), std::int64_t{16});
  return whole * std::max<std::int64_t>(1, 128 / whole);
}

/// Returns the channel values repeated to the width of a run.
template <class T, class From>
[[nodiscard]] std::vector<T> repeated(const From* values, std::int64_t channels) {
  std::vector<T> out(static_cast<std::size_t>(run_width(channels)));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<T>(values[i % static_cast<std::size_t>(channels)]);
  return out;
}

/// Blocks of whole runs. The block size depends only on the number of channels; the last run may be partial.
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

/// Calls f(begin, end) for every block, in parallel.
template <class F>
void parallel_blocks(const RunBlocks& blocks, F&& f) {
  detail::parallel_for(blocks.count, blocks.count > 2,
                       [&](std::int64_t b) { f(blocks.begin(b), blocks.end(b)); });
}

}  // namespace fq::cpu
