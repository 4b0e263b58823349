#pragma once

/// Reductions over the elements of each channel, in an order that depends on the shape alone; not a public
/// header.

#include "fakequant/core/cuda/launch.cuh"
#include "fakequant/core/storage.h"

namespace fq::cuda {

/// a / b of numbers that are not negative: by 32 bits, several times as fast, where both fit.
FQ_HD std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return a / b;
}

/// Elements in memory order: element i is of channel (i / inner) % channels.
struct ChannelView {
  std::int64_t channels, inner, count;

  [[nodiscard]] FQ_HD std::int64_t channel(std::int64_t i) const {
    if (channels == 1) return 0;
    const std::int64_t run = quotient(i, inner);
    return run - quotient(run, channels) * channels;
  }
  /// Elements of each channel.
  [[nodiscard]] FQ_HD std::int64_t length() const { return channels == 0 ? 0 : count / channels; }
  /// The k-th element of a channel.
  [[nodiscard]] FQ_HD std::int64_t element(std::int64_t c, std::int64_t k) const {
    const std::int64_t outer = quotient(k, inner);
    return (outer * channels + c) * inner + (k - outer * inner);
  }
};

/// How a reduction is cut: blocks of `width` channels by `lanes` threads each, times `parts` of their
/// elements.
struct ReductionShape {
  int width, lanes;
  std::int64_t tiles, parts, part_length;

  [[nodiscard]] static ReductionShape of(const ChannelView& view) {
    constexpr std::int64_t enough_blocks = 1024, least_items = 16;
    const int width = view.inner == 1 && view.channels > 1 ? 32 : 1, lanes = block_threads / width;
    const std::int64_t tiles = (view.channels + width - 1) / width, length = view.length();
    const std::int64_t most = std::max<std::int64_t>(1, enough_blocks / std::max<std::int64_t>(tiles, 1));
    const std::int64_t useful = length / (lanes * least_items) + 1;
    const std::int64_t part_length = (length + std::min(most, useful) - 1) / std::min(most, useful);
    const std::int64_t parts = part_length == 0 ? 1 : (length + part_length - 1) / part_length;
    return {width, lanes, tiles, parts, part_length};
  }
};

namespace detail {

/// `Reduction`: a trivial type Sum; Sum zero(); void add(Sum&, element, channel); void join(Sum&, const
/// Sum&).
template <class Reduction, class Put>
struct ChannelParts {
  static constexpr int phases = 3, joined = 8;
  using Sum = typename Reduction::Sum;
  struct Shared {
    Sum sums[block_threads];
  };
  Reduction reduction;
  Put put;
  ChannelView view;
  ReductionShape shape;

  /// Threads of one channel stand `width` apart.
  FQ_HD void join_lanes(int first, int step, int count, int column, Shared& shared) const {
    Sum sum = shared.sums[first * shape.width + column];
    for (int i = 1; i < count; ++i)
      reduction.join(sum, shared.sums[(first + i * step) * shape.width + column]);
    shared.sums[first * shape.width + column] = sum;
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    const std::int64_t tile = t.block % shape.tiles, part = t.block / shape.tiles;
    const int column = t.thread % shape.width, lane = t.thread / shape.width;
    const std::int64_t c = tile * shape.width + column;
    if (Phase == 0) {
      Sum sum = reduction.zero();
      const std::int64_t end =
          (part + 1) * shape.part_length < view.length() ? (part + 1) * shape.part_length : view.length();
      if (c < view.channels)
        for (std::int64_t k = part * shape.part_length + lane; k < end; k += shape.lanes)
          reduction.add(sum, view.element(c, k), c);
      shared.sums[t.thread] = sum;
    }
    if (Phase == 1 && lane % joined == 0) join_lanes(lane, 1, joined, column, shared);
    if (Phase == 2 && lane == 0) {
      join_lanes(0, joined, shape.lanes / joined, column, shared);
      if (c < view.channels) put(part, c, shared.sums[column]);
    }
  }
};

template <class Sum>
struct PutPart {
  Sum* partial;
  std::int64_t channels;
  FQ_HD void operator()(std::int64_t part, std::int64_t c, const Sum& sum) const {
    partial[part * channels + c] = sum;
  }
};

template <class Put>
struct PutChannel {
  Put put;
  template <class Sum>
  FQ_HD void operator()(std::int64_t, std::int64_t c, const Sum& sum) const {
    put(c, sum);
  }
};

/// The same over the parts.
template <class Reduction>
struct OfParts {
  using Sum = typename Reduction::Sum;
  Reduction reduction;
  const Sum* partial;
  FQ_HD Sum zero() const { return reduction.zero(); }
  FQ_HD void add(Sum& sum, std::int64_t element, std::int64_t) const {
    reduction.join(sum, partial[element]);
  }
  FQ_HD void join(Sum& sum, const Sum& other) const { reduction.join(sum, other); }
};

template <class Reduction, class Put>
void reduce_parts(Device device, const ChannelView& view, const ReductionShape& shape, Reduction reduction,
                  Put put) {
  for_blocks(device, shape.tiles * shape.parts, ChannelParts<Reduction, Put>{reduction, put, view, shape});
}

}  // namespace detail

/// put(channel, sum of reduction.add over its elements) for every channel, also of no elements. `Reduction`
/// has a trivial type Sum and, FQ_HD and const: Sum zero(), void add(Sum&, element, channel), void join(Sum&,
/// const Sum&). At most two launches.
template <class Reduction, class Put>
void reduce_channels(Device device, const ChannelView& view, Reduction reduction, Put put) {
  using Sum = typename Reduction::Sum;
  const auto shape = ReductionShape::of(view);
  if (shape.parts == 1)
    return detail::reduce_parts(device, view, shape, reduction, detail::PutChannel<Put>{put});
  Storage scratch(shape.parts * view.channels * static_cast<std::int64_t>(sizeof(Sum)), device);
  auto* partial = reinterpret_cast<Sum*>(scratch.mutable_data());
  detail::reduce_parts(device, view, shape, reduction, detail::PutPart<Sum>{partial, view.channels});
  const ChannelView rows{view.channels, 1, shape.parts * view.channels};
  ReductionShape whole = ReductionShape::of(rows);
  whole.parts = 1;
  whole.part_length = rows.length();
  detail::reduce_parts(device, rows, whole, detail::OfParts<Reduction>{reduction, partial},
                       detail::PutChannel<Put>{put});
}

}  // namespace fq::cuda
