#pragma once

/// A tensor in memory order, seen around one logical axis.

#include <algorithm>

#include "fakequant/core/blocks/detail/memory_view.h"

namespace fq::cpu {

/// Element i in memory order belongs to channel (i / inner) % channels.
struct Channels {
  std::int64_t channels = 1;
  std::int64_t inner = 1;

  /// Of `axis` of a tensor of that shape and layout; axis -1 means one channel for all.
  static Channels of(const Shape& shape, Layout layout, int axis) {
    if (axis < 0) return {1, std::max<std::int64_t>(numel(shape), 1)};
    const AxisView view = detail::memory_view(shape, layout, axis);
    return {view.size, std::max<std::int64_t>(view.inner, 1)};
  }
  [[nodiscard]] std::int64_t at(std::int64_t i) const { return channels == 1 ? 0 : (i / inner) % channels; }
};

/// Calls f(begin, end, channel) for runs of elements of one channel, in memory order, in parallel over blocks
/// of 4096 elements: masks of different blocks share no byte.
template <class F>
void for_runs(std::int64_t count, const Channels& view, F&& f) {
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

/// Sets bit i of a mask in memory order; the bits must be 0 before.
inline void set_bit(std::uint8_t* mask, std::int64_t i, bool on) {
  mask[i >> 3] = static_cast<std::uint8_t>(mask[i >> 3] | (static_cast<unsigned>(on) << (i & 7)));
}
inline bool get_bit(const std::uint8_t* mask, std::int64_t i) {
  return ((mask[i >> 3] >> (i & 7)) & 1u) != 0;
}

}  // namespace fq::cpu
