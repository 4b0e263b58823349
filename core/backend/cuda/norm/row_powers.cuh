#pragma once

/// Sums of exponentials along contiguous rows, for softmax and cross entropy.

#include <limits>

#include "fakequant/core/backend/cuda/loops/row_blocks.cuh"
#include "fakequant/core/backend/cuda/loops/sums.cuh"
#include "fakequant/core/numerics/detail/row_formulas.h"

namespace fq::cuda {

/// Largest element and sum of exponentials of each row. Threads of a block share a row, and each keeps its
/// first elements in registers. After the phases, entry p.first of the shared arrays has the result of a row.
template <class T>
struct RowPowers {
  static constexpr int phases = 2 + 2 * join_phases;
  struct Shared {
    T largest[block_threads];
    SumOf<T> sums[block_threads];
  };
  struct Kept {
    T v[group_size];
  };
  RowBlocks shape;
  const T* x;

  /// Calls f(first, count, values) with x, or with the values that an earlier f produced.
  template <bool made, class F>
  FQ_HD void visit(std::int64_t at, int lane, Kept& kept, const F& f) const {
    const auto load = [&](std::int64_t first, int count, Kept& to) {
      load_group(x + at + first, count, to.v);
    };
    visit_lane_values<made>(shape, lane, kept, load, f);
  }
  FQ_HD T lane_maximum(std::int64_t at, int lane, Kept& kept) const {
    T largest = -std::numeric_limits<T>::infinity();
    visit<false>(at, lane, kept, [&](std::int64_t, int count, const Kept& of) {
      for (int j = 0; j < group_size; ++j)
        if (j < count && of.v[j] > largest) largest = of.v[j];
    });
    return largest;
  }
  FQ_HD SumOf<T> lane_sum(std::int64_t at, int lane, T largest, Kept& kept) const {
    SumOf<T> sum{};
    visit<true>(at, lane, kept, [&](std::int64_t, int count, const Kept& of) {
      for (int j = 0; j < group_size; ++j)
        if (j < count) sum.add(fq::detail::softmax_power(of.v[j], largest));
    });
    return sum;
  }

  // Passes over a row: largest element, sum of exponentials. Each reduction joins in three phases.
  template <int Phase>
  FQ_HD void phase(Thread t, const RowBlocks::Place& p, Shared& shared, Kept& kept) const {
    const std::int64_t at = p.row * shape.length;
    if (Phase == 0) shared.largest[t.thread] = lane_maximum(at, p.lane, kept);
    if constexpr (0 < Phase && Phase < 4) join_lanes<Phase - 1>(shape, p, shared.largest, JoinLargest{});
    if (Phase == 4) shared.sums[t.thread] = lane_sum(at, p.lane, shared.largest[p.first], kept);
    if constexpr (4 < Phase && Phase < 8) join_lanes<Phase - 5>(shape, p, shared.sums, JoinSums{});
  }
};

}  // namespace fq::cuda
