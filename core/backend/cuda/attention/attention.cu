#include <limits>

#include "fakequant/core/backend/cuda/attention/attention.h"
#include "fakequant/core/backend/cuda/loops/reduction_shape.h"
#include "fakequant/core/backend/cuda/loops/row_blocks.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/numerics/detail/row_formulas.h"

namespace fq::cuda {
namespace {

using fq::detail::AttentionRows;
using fq::detail::Rotation;

/// Threads of a block share a row; each changes its own elements only.
template <class T>
struct AttentionWeights {
  static constexpr int phases = 7;
  struct Shared {
    T largest[block_threads];
    double sums[block_threads];
  };
  RowBlocks shape;
  AttentionRows rows;
  const T* mask;
  T* scores;

  FQ_HD T score(std::int64_t row, std::int64_t key) const {
    const T* own = mask == nullptr ? nullptr : mask + rows.mask_at(row) + key * rows.mask_strides[3];
    return fq::detail::attention_score(scores[row * shape.length + key], static_cast<T>(rows.scale), own);
  }
  FQ_HD T largest_of(std::int64_t row, int lane, std::int64_t seen) const {
    T largest = -std::numeric_limits<T>::infinity();
    for_lane(shape, lane, [&](std::int64_t first, int count) {
      for (std::int64_t j = first; j < first + count && j < seen; ++j)
        if (const T v = score(row, j); v > largest) largest = v;
    });
    return largest;
  }
  FQ_HD double powers_of(std::int64_t row, int lane, std::int64_t seen, T largest) const {
    double sum = 0.0;
    const bool none = largest == -std::numeric_limits<T>::infinity();
    for_lane(shape, lane, [&](std::int64_t first, int count) {
      for (std::int64_t j = first; j < first + count; ++j) {
        const T power = none || j >= seen ? T{0} : fq::detail::softmax_power(score(row, j), largest);
        scores[row * shape.length + j] = power;
        sum += static_cast<double>(power);
      }
    });
    return sum;
  }
  FQ_HD void divide(std::int64_t row, int lane, T sum) const {
    if (sum == T{0}) return;
    for_lane(shape, lane, [&](std::int64_t first, int count) {
      for (std::int64_t j = first; j < first + count; ++j) scores[row * shape.length + j] /= sum;
    });
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    const auto p = shape.place(t);
    if (p.row >= shape.rows) return;
    const std::int64_t seen = rows.visible(p.row);
    if (Phase == 0) shared.largest[t.thread] = largest_of(p.row, p.lane, seen);
    if (Phase == 1) join_neighbours(shape, p, shared.largest, JoinLargest{});
    if (Phase == 2 && p.lane == 0) join_row(shape, p, shared.largest, JoinLargest{});
    if (Phase == 3) shared.sums[t.thread] = powers_of(p.row, p.lane, seen, shared.largest[p.first]);
    if (Phase == 4) join_neighbours(shape, p, shared.sums, JoinSum{});
    if (Phase == 5 && p.lane == 0) join_row(shape, p, shared.sums, JoinSum{});
    if (Phase == 6) divide(p.row, p.lane, static_cast<T>(shared.sums[p.first]));
  }
};

template <class T>
struct AttentionWeightsBackward {
  static constexpr int phases = 4;
  struct Shared {
    double sums[block_threads];
  };
  RowBlocks shape;
  const T* p;
  T scale;
  T* dp;

  FQ_HD double sum_of(std::int64_t at, int lane) const {
    double sum = 0.0;
    for_lane(shape, lane, [&](std::int64_t first, int count) {
      for (std::int64_t j = at + first; j < at + first + count; ++j) sum += static_cast<double>(dp[j] * p[j]);
    });
    return sum;
  }
  FQ_HD void write(std::int64_t at, int lane, T sum) const {
    for_lane(shape, lane, [&](std::int64_t first, int count) {
      for (std::int64_t j = at + first; j < at + first + count; ++j)
        dp[j] = fq::detail::attention_gradient(dp[j], p[j], sum, scale);
    });
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    const auto place = shape.place(t);
    if (place.row >= shape.rows) return;
    const std::int64_t at = place.row * shape.length;
    if (Phase == 0) shared.sums[t.thread] = sum_of(at, place.lane);
    if (Phase == 1) join_neighbours(shape, place, shared.sums, JoinSum{});
    if (Phase == 2 && place.lane == 0) join_row(shape, place, shared.sums, JoinSum{});
    if (Phase == 3) write(at, place.lane, static_cast<T>(shared.sums[place.first]));
  }
};

/// One thread for a pair, or for an element behind the pairs.
template <class T>
struct Rotate {
  Rotation rotation;
  const T *x, *table;
  T* y;
  FQ_HD void operator()(std::int64_t i) const {
    const std::int64_t items = rotation.width - rotation.pairs, row = quotient(i, items),
                       item = i - row * items, at = row * rotation.width;
    if (item >= rotation.pairs) {
      y[at + item + rotation.pairs] = x[at + item + rotation.pairs];
      return;
    }
    const std::int64_t a = at + rotation.left(item), b = at + rotation.right(item);
    const T* turn = table + (row % rotation.rows * rotation.pairs + item) * 2;
    const auto turned = fq::detail::rotated(x[a], x[b], turn[0], rotation.back ? -turn[1] : turn[1]);
    y[a] = turned.left;
    y[b] = turned.right;
  }
};

}  // namespace

void attention_weights(const AttentionRows& rows, const Tensor& mask, Tensor& scores) {
  if (scores.numel() == 0) return;
  visit_float(scores.dtype(), [&]<class T>(T) {
    const auto shape = RowBlocks::of(scores.numel() / rows.keys, rows.keys);
    for_blocks(scores.device(), shape.blocks(),
               AttentionWeights<T>{shape, rows, data_of<T>(mask), mutable_data_of<T>(scores)});
  });
}

void attention_weights_backward(const Tensor& p, double scale, Tensor& dp) {
  if (p.numel() == 0) return;
  visit_float(p.dtype(), [&]<class T>(T) {
    const auto shape = RowBlocks::of(p.numel() / p.dim(-1), p.dim(-1));
    for_blocks(
        p.device(), shape.blocks(),
        AttentionWeightsBackward<T>{shape, data_of<T>(p), static_cast<T>(scale), mutable_data_of<T>(dp)});
  });
}

void rotate(const Tensor& x, const Tensor& table, const Rotation& rotation, Tensor& y) {
  if (x.numel() == 0) return;
  visit_float(x.dtype(), [&]<class T>(T) {
    const std::int64_t items = x.numel() / rotation.width * (rotation.width - rotation.pairs);
    for_items(x.device(), items,
              Rotate<T>{rotation, data_of<T>(x), data_of<T>(table), mutable_data_of<T>(y)});
  });
}

}  // namespace fq::cuda
