#pragma once

/// Sums and maxima over rows by the threads of a block, joined in three phases.

#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/row_shapes.h"

namespace fq::cuda {

/// Calls f(first, count) for the lane's groups of elements.
template <class F>
FQ_HD void visit_lane(const RowBlocks& shape, int lane, const F& f) {
  for (std::int64_t i = std::int64_t{lane} * group_size; i < shape.length;
       i += std::int64_t{shape.lanes} * group_size) {
    const std::int64_t left = shape.length - i;
    f(i, left < group_size ? static_cast<int>(left) : group_size);
  }
}

/// Calls f(first, count, values) for the lane's groups, whose values load(first, count, values) reads. The
/// values of the first group are kept: with `made` they were read before and are reused.
template <bool made, class Kept, class Load, class F>
FQ_HD void visit_lane_values(const RowBlocks& shape, int lane, Kept& kept, const Load& load, const F& f) {
  const std::int64_t begin = std::int64_t{lane} * group_size;
  visit_lane(shape, lane, [&](std::int64_t first, int count) {
    Kept own;
    if (made && first == begin)
      own = kept;
    else
      load(first, count, own);
    f(first, count, own);
    if (first == begin) kept = own;
  });
}

/// Loads a group of a vector that is optional: otherwise each element is `otherwise`.
template <class T>
FQ_HD void load_or(const T* p, T otherwise, std::int64_t first, int count, T (&v)[group_size]) {
  if (p != nullptr) return load_group(p + first, count, v);
  for (T& each : v) each = otherwise;
}
/// Returns 1 / length.
template <class T>
T row_share(std::int64_t length) {
  return static_cast<T>(1.0 / static_cast<double>(length));
}

struct JoinLargest {
  template <class T>
  FQ_HD void operator()(T& a, const T& b) const {
    if (b > a) a = b;
  }
};

inline constexpr int join_phases = 3;

/// Joins in parts 0, 1, 2: into the first 16 lanes of a row, then 4, then one, so that few warps work.
/// join(a, b) adds b to a. In the end values[p.first] is the result of the row.
template <int part, class Value, class Join>
FQ_HD void join_lanes(const RowBlocks& shape, const RowBlocks::Place& p, Value* values, const Join& join) {
  constexpr int left[] = {block_threads, 16, 4, 1}, from = left[part], to = left[part + 1];
  if (p.lane >= to) return;
  for (int lane = p.lane + to; lane < from && lane < shape.lanes; lane += to)
    join(values[p.first + p.lane], values[p.first + lane]);
}

}  // namespace fq::cuda
