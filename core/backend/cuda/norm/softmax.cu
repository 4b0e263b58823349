#include <limits>

#include "fakequant/core/backend/cuda/loops/row_blocks.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/cuda/norm/softmax.h"
#include "fakequant/core/backend/cuda/norm/softmax_lines.cuh"

namespace fq::cuda {
namespace {

/// Lines that lie together: threads of a block share a row.
template <class T>
struct SoftmaxRows {
  static constexpr int phases = 7;
  struct Shared {
    T largest[block_threads];
    double sums[block_threads];
  };
  RowBlocks shape;
  const T* x;
  bool logarithm;
  T* y;

  FQ_HD T largest_of(const T* row, int lane) const {
    T largest = -std::numeric_limits<T>::infinity();
    for_lane(shape, lane, [&](std::int64_t first, int count) {
      T v[group_size];
      load_group(row + first, count, v);
      for (int j = 0; j < group_size; ++j)
        if (j < count && v[j] > largest) largest = v[j];
    });
    return largest;
  }
  FQ_HD double sum_of(const T* row, int lane, T largest) const {
    double sum = 0.0;
    for_lane(shape, lane, [&](std::int64_t first, int count) {
      T v[group_size];
      load_group(row + first, count, v);
      for (int j = 0; j < group_size; ++j)
        if (j < count) sum += static_cast<double>(softmax_power(v[j], largest));
    });
    return sum;
  }
  FQ_HD void write(std::int64_t at, int lane, T largest, double sum) const {
    for_lane(shape, lane, [&](std::int64_t first, int count) {
      T v[group_size];
      load_group(x + at + first, count, v);
      for (int j = 0; j < group_size; ++j)
        if (j < count) v[j] = value_of(v[j], largest, sum, logarithm);
      store_group(y + at + first, count, v);
    });
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    const auto p = shape.place(t);
    if (p.row >= shape.rows) return;
    const std::int64_t at = p.row * shape.length;
    if (Phase == 0) shared.largest[t.thread] = largest_of(x + at, p.lane);
    if (Phase == 1) join_neighbours(shape, p, shared.largest, JoinLargest{});
    if (Phase == 2 && p.lane == 0) join_row(shape, p, shared.largest, JoinLargest{});
    if (Phase == 3) shared.sums[t.thread] = sum_of(x + at, p.lane, shared.largest[p.first]);
    if (Phase == 4) join_neighbours(shape, p, shared.sums, JoinSum{});
    if (Phase == 5 && p.lane == 0) join_row(shape, p, shared.sums, JoinSum{});
    if (Phase == 6) write(at, p.lane, shared.largest[p.first], shared.sums[p.first]);
  }
};

template <class T>
struct SoftmaxRowsBackward {
  static constexpr int phases = 4;
  struct Shared {
    double sums[block_threads];
  };
  RowBlocks shape;
  const T *dy, *y;
  bool logarithm;
  T* dx;

  FQ_HD double sum_of(std::int64_t at, int lane) const {
    double sum = 0.0;
    for_lane(shape, lane, [&](std::int64_t first, int count) {
      T g[group_size], v[group_size];
      load_group(dy + at + first, count, g);
      load_group(y + at + first, count, v);
      for (int j = 0; j < group_size; ++j)
        if (j < count) sum += static_cast<double>(softmax_term(g[j], v[j], logarithm));
    });
    return sum;
  }
  FQ_HD void write(std::int64_t at, int lane, T sum) const {
    for_lane(shape, lane, [&](std::int64_t first, int count) {
      T g[group_size], v[group_size];
      load_group(dy + at + first, count, g);
      load_group(y + at + first, count, v);
      for (int j = 0; j < group_size; ++j)
        if (j < count) g[j] = softmax_gradient(g[j], v[j], sum, logarithm);
      store_group(dx + at + first, count, g);
    });
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    const auto p = shape.place(t);
    if (p.row >= shape.rows) return;
    const std::int64_t at = p.row * shape.length;
    if (Phase == 0) shared.sums[t.thread] = sum_of(at, p.lane);
    if (Phase == 1) join_neighbours(shape, p, shared.sums, JoinSum{});
    if (Phase == 2 && p.lane == 0) join_row(shape, p, shared.sums, JoinSum{});
    if (Phase == 3) write(at, p.lane, static_cast<T>(shared.sums[p.first]));
  }
};

}  // namespace

void softmax(const Tensor& x, const AxisView& view, bool logarithm, Tensor& y) {
  if (x.numel() == 0) return;
  visit_float(x.dtype(), [&]<class T>(T) {
    auto* out = mutable_data_of<T>(y);
    const auto shape = RowBlocks::of(view.outer, view.size);
    if (view.inner == 1)
      for_blocks(x.device(), shape.blocks(), SoftmaxRows<T>{shape, data_of<T>(x), logarithm, out});
    else
      for_items(x.device(), view.outer * view.inner,
                SoftmaxLine<T>{{view.size, view.inner}, data_of<T>(x), logarithm, out});
  });
}

void softmax_backward(const Tensor& dy, const Tensor& y, const AxisView& view, bool logarithm, Tensor& dx) {
  if (y.numel() == 0) return;
  visit_float(y.dtype(), [&]<class T>(T) {
    const T *g = data_of<T>(dy), *v = data_of<T>(y);
    auto* out = mutable_data_of<T>(dx);
    const auto shape = RowBlocks::of(view.outer, view.size);
    if (view.inner == 1)
      for_blocks(y.device(), shape.blocks(), SoftmaxRowsBackward<T>{shape, g, v, logarithm, out});
    else
      for_items(y.device(), view.outer * view.inner,
                SoftmaxLineBackward<T>{{view.size, view.inner}, g, v, logarithm, out});
  });
}

}  // namespace fq::cuda
