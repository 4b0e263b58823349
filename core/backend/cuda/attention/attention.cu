#include <limits>

#include "fakequant/core/backend/cuda/loops/reduction_shape.h"
#include "fakequant/core/backend/cuda/loops/row_blocks.cuh"
#include "fakequant/core/backend/cuda/loops/sums.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/row_formulas.h"

namespace fq::cuda {
namespace {

using fq::detail::AttentionRows;
using fq::detail::Rotation;

/// Computes attention weights. Threads of a block share a row. Each thread writes only its own elements, and
/// keeps the first group in registers.
template <class T>
struct AttentionWeights {
  static constexpr int phases = 3 + 2 * join_phases;
  struct Shared {
    T largest[block_threads];
    SumOf<T> sums[block_threads];
  };
  struct Kept {
    T v[group_size];  // scores, then their exponentials
  };
  RowBlocks shape;
  AttentionRows rows;
  const T* mask;
  T* scores;

  // scores: [rows, keys]. The mask is broadcast by strides of 0, so it needs no copy of this size.
  FQ_HD void load_scores(std::int64_t row, std::int64_t first, int count, T (&v)[group_size]) const {
    const T* own = mask == nullptr ? nullptr : mask + rows.mask_offset(row) + first * rows.mask_strides[3];
    load_group(scores + row * shape.length + first, count, v);
    for (int j = 0; j < group_size; ++j)
      if (j < count)
        v[j] = fq::detail::attention_score(v[j], static_cast<T>(rows.scale),
                                           own == nullptr ? nullptr : own + j * rows.mask_strides[3]);
  }
  template <bool made, class F>
  FQ_HD void visit(std::int64_t row, int lane, Kept& kept, const F& f) const {
    const auto load = [&](std::int64_t first, int count, Kept& to) { load_scores(row, first, count, to.v); };
    visit_lane_values<made>(shape, lane, kept, load, f);
  }
  FQ_HD T lane_maximum(std::int64_t row, int lane, std::int64_t seen, Kept& kept) const {
    T largest = -std::numeric_limits<T>::infinity();
    visit<false>(row, lane, kept, [&](std::int64_t first, int count, const Kept& of) {
      for (int j = 0; j < group_size; ++j)
        if (j < count && first + j < seen && of.v[j] > largest) largest = of.v[j];
    });
    return largest;
  }
  FQ_HD SumOf<T> exponential_sum(std::int64_t row, int lane, std::int64_t seen, T largest, Kept& kept) const {
    SumOf<T> sum{};
    // Every visible score is -infinity: exp(-inf - -inf) would be NaN.
    const bool none = largest == -std::numeric_limits<T>::infinity();
    visit<true>(row, lane, kept, [&](std::int64_t first, int count, Kept& of) {
      for (int j = 0; j < group_size; ++j) {
        if (j >= count) continue;
        of.v[j] = none || first + j >= seen ? T{0} : fq::detail::softmax_power(of.v[j], largest);
        sum.add(of.v[j]);
      }
      // The first group stays in registers. Others go to memory and are read by `divide`.
      if (lane * group_size != first) store_group(scores + row * shape.length + first, count, of.v);
    });
    return sum;
  }
  FQ_HD void divide(std::int64_t row, int lane, T sum, Kept& kept) const {
    T* own = scores + row * shape.length;
    const auto load = [&](std::int64_t first, int count, Kept& to) { load_group(own + first, count, to.v); };
    visit_lane_values<true>(shape, lane, kept, load, [&](std::int64_t first, int count, Kept& of) {
      for (int j = 0; j < group_size; ++j)
        // A row without visible keys stays 0.
        if (j < count && sum != T{0}) of.v[j] /= sum;
      store_group(own + first, count, of.v);
    });
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared, Kept& kept) const {
    const auto p = shape.place(t);
    if (p.row >= shape.rows) return;
    const std::int64_t seen = rows.visible(p.row);
    if (Phase == 0) shared.largest[t.thread] = lane_maximum(p.row, p.lane, seen, kept);
    if constexpr (0 < Phase && Phase < 4) join_lanes<Phase - 1>(shape, p, shared.largest, JoinLargest{});
    if (Phase == 4)
      shared.sums[t.thread] = exponential_sum(p.row, p.lane, seen, shared.largest[p.first], kept);
    if constexpr (4 < Phase && Phase < 8) join_lanes<Phase - 5>(shape, p, shared.sums, JoinSums{});
    if (Phase == 8) divide(p.row, p.lane, static_cast<T>(shared.sums[p.first].value()), kept);
  }
};

// ds = p * (dp - sum(dp * p)) * scale, in place.
template <class T>
struct AttentionWeightsBackward {
  static constexpr int phases = 2 + join_phases;
  struct Shared {
    SumOf<T> sums[block_threads];
  };
  struct Kept {
    T g[group_size], v[group_size];
  };
  RowBlocks shape;
  const T* p;
  T scale;
  T* dp;

  template <bool made, class F>
  FQ_HD void visit(std::int64_t at, int lane, Kept& kept, const F& f) const {
    const auto load = [&](std::int64_t first, int count, Kept& to) {
      load_group(dp + at + first, count, to.g);
      load_group(p + at + first, count, to.v);
    };
    visit_lane_values<made>(shape, lane, kept, load, f);
  }
  FQ_HD SumOf<T> lane_sum(std::int64_t at, int lane, Kept& kept) const {
    SumOf<T> sum{};
    visit<false>(at, lane, kept, [&](std::int64_t, int count, const Kept& of) {
      for (int j = 0; j < group_size; ++j)
        if (j < count) sum.add(of.g[j] * of.v[j]);
    });
    return sum;
  }
  FQ_HD void write(std::int64_t at, int lane, T sum, Kept& kept) const {
    visit<true>(at, lane, kept, [&](std::int64_t first, int count, Kept& of) {
      for (int j = 0; j < group_size; ++j)
        if (j < count) of.g[j] = fq::detail::attention_gradient(of.g[j], of.v[j], sum, scale);
      store_group(dp + at + first, count, of.g);
    });
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared, Kept& kept) const {
    const auto place = shape.place(t);
    if (place.row >= shape.rows) return;
    const std::int64_t at = place.row * shape.length;
    if (Phase == 0) shared.sums[t.thread] = lane_sum(at, place.lane, kept);
    if constexpr (0 < Phase && Phase < 4) join_lanes<Phase - 1>(shape, place, shared.sums, JoinSums{});
    if (Phase == 4) write(at, place.lane, static_cast<T>(shared.sums[place.first].value()), kept);
  }
};

/// Rotates one pair per thread, or copies one element after the pairs.
// x, y: [.., rows, width], table: [rows, pairs, 2].
template <class T>
struct Rotate {
  Rotation rotation;
  const T *x, *table;
  T* y;
  FQ_HD void operator()(std::int64_t i) const {
    // Items of a row: its pairs, then the elements that are not rotated.
    const std::int64_t pairs = rotation.heads * rotation.pairs, items = rotation.width - pairs,
                       row = quotient(i, items), item = i - row * items, at = row * rotation.width;
    if (item >= pairs) {
      y[at + item + pairs] = x[at + item + pairs];
      return;
    }
    const std::int64_t head = quotient(item, rotation.pairs), pair = item - head * rotation.pairs,
                       first = at + head * 2 * rotation.pairs, a = first + rotation.left(pair),
                       b = first + rotation.right(pair);
    const T* turn = table + (row % rotation.rows * rotation.pairs + pair) * 2;
    const auto rotated_pair = fq::detail::rotated(x[a], x[b], turn[0], rotation.back ? -turn[1] : turn[1]);
    y[a] = rotated_pair.left;
    y[b] = rotated_pair.right;
  }
};

}  // namespace

void attention_weights(const AttentionRows& rows, const Tensor& mask, Tensor& scores) {
  if (scores.numel() == 0) return;
  visit_float(scores.dtype(), [&]<class T>(T) {
    const auto shape = RowBlocks::of(scores.numel() / rows.keys, rows.keys);
    launch_stateful_blocks(
        scores.device(), shape.blocks(),
        AttentionWeights<T>{shape, rows, device_data<T>(mask), updated_device_data<T>(scores)});
  });
}

void attention_weights_backward(const Tensor& p, double scale, Tensor& dp) {
  if (p.numel() == 0) return;
  visit_float(p.dtype(), [&]<class T>(T) {
    const auto shape = RowBlocks::of(p.numel() / p.dim(-1), p.dim(-1));
    launch_stateful_blocks(p.device(), shape.blocks(),
                           AttentionWeightsBackward<T>{shape, device_data<T>(p), static_cast<T>(scale),
                                                       updated_device_data<T>(dp)});
  });
}

void rotate(const Tensor& x, const Tensor& table, const Rotation& rotation, Tensor& y) {
  if (x.numel() == 0) return;
  visit_float(x.dtype(), [&]<class T>(T) {
    const std::int64_t items =
        x.numel() / rotation.width * (rotation.width - rotation.heads * rotation.pairs);
    launch_each(x.device(), items,
                Rotate<T>{rotation, device_data<T>(x), device_data<T>(table), mutable_device_data<T>(y)});
  });
}

}  // namespace fq::cuda
