#pragma once

/// A walk (core/blocks/detail/walk.h) in the form of kernels: strides of each operand's elements.

#include "fakequant/core/backend/cuda/loops/divisor.h"
#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/reduction_shape.h"
#include "fakequant/core/blocks/detail/walk.h"

namespace fq::cuda {

/// Strides of elements counted in the order of the walk, with the last axis fastest.
struct Strides {
  static constexpr int most = 12;
  int rank = 0;
  Divisor sizes[most];
  std::int64_t steps[2][most];

  /// Appends an axis as the new fastest axis.
  void add(std::int64_t size, std::int64_t left, std::int64_t right) {
    if (rank == most)
      throw ArgumentError("[cuda] more than 12 axes cannot be merged: reshape the tensors first");
    sizes[rank] = size;
    steps[0][rank] = left;
    steps[1][rank++] = right;
  }
  [[nodiscard]] static Strides of(const cpu::Walk& walk) {
    Strides out;
    for (std::size_t i = 0; i < walk.sizes().size(); ++i)
      out.add(walk.sizes()[i], walk.strides(0)[i], walk.strides(1)[i]);
    return out;
  }

  /// Returns the size of the fastest axis, and the position of an element on it.
  [[nodiscard]] FQ_HD std::int64_t inner() const { return sizes[rank - 1].value; }
  [[nodiscard]] FQ_HD std::int64_t column(std::int64_t i) const {
    return rank == 1 ? i : sizes[rank - 1].take_remainder(i);
  }
  [[nodiscard]] FQ_HD std::int64_t offset(int operand, std::int64_t i) const {
    std::int64_t at = 0;
    for (int axis = rank - 1; axis > 0; --axis) at += sizes[axis].take_remainder(i) * steps[operand][axis];
    return rank == 0 ? 0 : at + i * steps[operand][0];
  }
};

/// Sets v[j] to the operand's element first + j for j < count <= size. The other elements are unspecified.
template <int size, class T>
FQ_HD void load_strided(const T* p, const Strides& s, int operand, std::int64_t first, int count,
                        T (&v)[size]) {
  const std::int64_t inner = s.inner(), step = s.steps[operand][s.rank - 1];
  std::int64_t column = s.column(first);
  std::int64_t at = s.offset(operand, first);
  if (step == 1 && column + count <= inner) return load_group(p + at, count, v);
  for (int j = 0; j < size; ++j) {
    if (j >= count) break;
    if (column == inner) {
      column = 0;
      at = s.offset(operand, first + j);
    }
    v[j] = p[at];
    ++column;
    at += step;
  }
}

}  // namespace fq::cuda
