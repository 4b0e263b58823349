#pragma once

/// Division of reductions over channels into blocks. Plain arithmetic, for host and device.

#include <algorithm>
#include <cstdint>

#include "fakequant/core/backend/cuda/loops/launch_shape.h"
#include "fakequant/core/blocks/detail/block_map.h"

namespace fq::cuda {

using fq::detail::quotient;

/// Divides i by `size` in place and returns the remainder.
FQ_HD std::int64_t take_remainder(std::int64_t& i, std::int64_t size) {
  const std::int64_t rest = quotient(i, size), remainder = i - rest * size;
  i = rest;
  return remainder;
}

/// Elements in memory order: element i belongs to channel (i / inner) % channels.
struct ChannelView {
  std::int64_t channels, inner, count;

  [[nodiscard]] FQ_HD std::int64_t channel(std::int64_t i) const {
    if (channels == 1) return 0;
    const std::int64_t run = quotient(i, inner);
    return run - quotient(run, channels) * channels;
  }
  /// Returns the number of elements of each channel.
  [[nodiscard]] FQ_HD std::int64_t length() const { return channels == 0 ? 0 : count / channels; }
  /// Returns the k-th element of a channel.
  [[nodiscard]] FQ_HD std::int64_t element(std::int64_t c, std::int64_t k) const {
    if (inner == 1) return k * channels + c;
    const std::int64_t outer = quotient(k, inner);
    return (outer * channels + c) * inner + (k - outer * inner);
  }
};

/// Block layout of a reduction: each block has `width` channels by `lanes` threads, and there are `parts`
/// parts of their elements.
struct ReductionShape {
  int width, lanes;
  std::int64_t tiles, parts, part_length;

  /// A thread reduces at least `least_items` elements of a channel, if there are enough.
  [[nodiscard]] static ReductionShape of(const ChannelView& view, std::int64_t least_items = 16) {
    constexpr std::int64_t enough_blocks = 1024;
    int width = 1;  // adjacent channels, for coalesced reads
    while (view.inner == 1 && width < 32 && width < view.channels) width *= 2;
    const int lanes = block_threads / width;
    const std::int64_t tiles = (view.channels + width - 1) / width, length = view.length();
    const std::int64_t most = std::max<std::int64_t>(1, enough_blocks / std::max<std::int64_t>(tiles, 1));
    const std::int64_t useful = length / (lanes * least_items) + 1;
    const std::int64_t part_length = (length + std::min(most, useful) - 1) / std::min(most, useful);
    const std::int64_t parts = part_length == 0 ? 1 : (length + part_length - 1) / part_length;
    return {width, lanes, tiles, parts, part_length};
  }
  /// Returns the shape for joining the parts of each channel, which are contiguous: one lane per part at
  /// most.
  [[nodiscard]] static ReductionShape join_shape(const ChannelView& view) {
    int lanes = block_threads;
    while (lanes > 8 && lanes / 2 >= view.inner) lanes /= 2;
    const int width = block_threads / lanes;
    return {width, lanes, (view.channels + width - 1) / width, 1, view.length()};
  }
  /// Returns the number of lanes of a channel in a warp.
  [[nodiscard]] FQ_HD int warp_lanes() const { return width < 32 ? 32 / width : 1; }
};

}  // namespace fq::cuda
