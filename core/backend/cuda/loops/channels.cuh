#pragma once

/// Reductions over the elements of each channel, in an order that depends only on the shape.

#include "fakequant/core/backend/cuda/loops/divisor.h"
#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/launch.cuh"
#include "fakequant/core/backend/cuda/loops/reduction_shape.h"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/storage.h"

namespace fq::cuda {

namespace loops {

/// Walks elements of a view that are `step` elements of a channel apart, without division between two
/// elements.
struct ChannelElements {
  std::int64_t channels, inner, length;
  Divisor inner_divisor;
  std::int64_t outer_step, rest_step;

  ChannelElements(const ChannelView& view, std::int64_t step)
      : channels(view.channels),
        inner(std::max<std::int64_t>(view.inner, 1)),
        length(view.length()),
        inner_divisor(inner),
        outer_step(step / inner),
        rest_step(step % inner) {}

  struct Place {
    std::int64_t outer, rest;
  };
  [[nodiscard]] FQ_HD Place place(std::int64_t k) const {
    const std::int64_t outer = inner_divisor.quotient(k);
    return {outer, k - outer * inner};
  }
  FQ_HD void advance(Place& at) const {
    at.outer += outer_step;
    at.rest += rest_step;
    if (at.rest < inner) return;
    at.rest -= inner;
    ++at.outer;
  }
  [[nodiscard]] FQ_HD std::int64_t element(std::int64_t c, const Place& at) const {
    return (at.outer * channels + c) * inner + at.rest;
  }
};

/// Partial reductions of channels. `Reduction` has a trivial type Sum; Sum zero(); void add(Sum&, element,
/// channel); void join(Sum&, const Sum&).
template <class Reduction, class Put>
struct ChannelParts {
  static constexpr int phases = 4;
  using Sum = typename Reduction::Sum;
  struct Shared {
    Sum sums[block_threads];
  };
  Reduction reduction;
  Put put;
  ChannelElements view;
  ReductionShape shape;
  Divisor tiles, width;
  int warp_lanes;

  /// Joins `from` lanes into the first `to` lanes. Threads of one channel are `width` apart.
  FQ_HD void join_lanes(int lane, int column, int from, int to, Shared& shared) const {
    if (lane >= to) return;
    Sum sum = shared.sums[lane * shape.width + column];
    for (int other = lane + to; other < from; other += to)
      reduction.join(sum, shared.sums[other * shape.width + column]);
    shared.sums[lane * shape.width + column] = sum;
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    const std::int64_t part = tiles.quotient(static_cast<int>(t.block)), tile = t.block - part * tiles.value;
    const int lane = width.quotient(t.thread), column = t.thread - lane * shape.width;
    const std::int64_t c = tile * shape.width + column;
    if (Phase == 0) {
      Sum sum = reduction.zero();
      const std::int64_t own = (part + 1) * shape.part_length, end = own < view.length ? own : view.length;
      std::int64_t k = part * shape.part_length + lane;
      if (c < view.channels && k < end)
        for (auto at = view.place(k); k < end; k += shape.lanes, view.advance(at))
          reduction.add(sum, view.element(c, at), c);
      shared.sums[t.thread] = sum;
    }
    const int a_warp = warp_lanes, few = a_warp < 4 ? a_warp : 4;
    if (Phase == 1) join_lanes(lane, column, shape.lanes, a_warp, shared);
    if (Phase == 2) join_lanes(lane, column, a_warp, few, shared);
    if (Phase == 3) join_lanes(lane, column, few, 1, shared);
    if (Phase == 3 && lane == 0 && c < view.channels) put(part, c, shared.sums[column]);
  }
};

template <class Sum>
struct PutPart {
  Sum* partial;
  std::int64_t parts;
  FQ_HD void operator()(std::int64_t part, std::int64_t c, const Sum& sum) const {
    partial[c * parts + part] = sum;
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

/// Reduction that joins the partial results.
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
  launch_blocks(device, shape.tiles * shape.parts,
                ChannelParts<Reduction, Put>{reduction, put, ChannelElements(view, shape.lanes), shape,
                                             Divisor(shape.tiles), Divisor(shape.width), shape.warp_lanes()});
}

}  // namespace loops

/// Joins `parts` partial results of each channel, which are contiguous, and calls put(channel, sum).
template <class Reduction, class Put>
void join_channel_parts(Device device, std::int64_t channels, std::int64_t parts, const Storage& partial,
                        Reduction reduction, Put put) {
  const ChannelView rows{channels, parts, parts * channels};
  loops::reduce_parts(device, rows, ReductionShape::join_shape(rows),
                      loops::OfParts<Reduction>{reduction, device_data<typename Reduction::Sum>(partial)},
                      loops::PutChannel<Put>{put});
}

/// Calls put(channel, sum of reduction.add over its elements) for every channel, including channels without
/// elements. `Reduction` has a trivial type Sum and, FQ_HD and const: Sum zero(), void add(Sum&, element,
/// channel), void join(Sum&, const Sum&). Uses at most two launches.
template <class Reduction, class Put>
void reduce_channels(Device device, const ChannelView& view, const ReductionShape& shape, Reduction reduction,
                     Put put) {
  using Sum = typename Reduction::Sum;
  if (shape.parts == 1)
    return loops::reduce_parts(device, view, shape, reduction, loops::PutChannel<Put>{put});
  Storage scratch(shape.parts * view.channels * static_cast<std::int64_t>(sizeof(Sum)), device);
  loops::reduce_parts(device, view, shape, reduction,
                      loops::PutPart<Sum>{mutable_device_data<Sum>(scratch), shape.parts});
  join_channel_parts(device, view.channels, shape.parts, scratch, reduction, put);
}
template <class Reduction, class Put>
void reduce_channels(Device device, const ChannelView& view, Reduction reduction, Put put) {
  reduce_channels(device, view, ReductionShape::of(view), reduction, put);
}

/// Sums of eight neighbouring columns. The alignment gives accesses of 16 bytes.
template <class Sums>
struct alignas(16) GroupSums {
  Sums v[group_size];
  FQ_HD void join(const GroupSums& other) {
    for (int j = 0; j < group_size; ++j) v[j].join(other.v[j]);
  }
};

/// Calls put(column, sum) for the columns of a group.
template <class Put>
struct PutGroup {
  Put put;
  std::int64_t columns;
  template <class Sums>
  FQ_HD void operator()(std::int64_t group, const GroupSums<Sums>& sums) const {
    for (int j = 0; j < group_size; ++j)
      if (group * group_size + j < columns) put(group * group_size + j, sums.v[j]);
  }
};

/// Minimum and maximum of a row's values and 0.
struct RowEnds {
  float low, high;
  bool nan;
};

struct FindRowEnds {
  using Sum = RowEnds;
  const float* x;
  FQ_HD Sum zero() const { return {0.0f, 0.0f, false}; }
  FQ_HD void add(Sum& ends, std::int64_t i, std::int64_t) const { join(ends, {x[i], x[i], x[i] != x[i]}); }
  FQ_HD void join(Sum& ends, const Sum& other) const {
    ends = {other.low < ends.low ? other.low : ends.low, other.high > ends.high ? other.high : ends.high,
            ends.nan || other.nan};
  }
};

}  // namespace fq::cuda
