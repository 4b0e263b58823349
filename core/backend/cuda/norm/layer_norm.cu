#include "fakequant/core/backend/cuda/loops/row_blocks.cuh"
#include "fakequant/core/backend/cuda/loops/sums.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/row_formulas.h"

namespace fq::cuda {
namespace {

using fq::detail::layer_norm_value;
using fq::detail::layer_normal;
using fq::detail::rms_normal;
using fq::detail::rms_root;

template <class T>
struct Forward {
  static constexpr int phases = 2 + join_phases;
  struct Shared {
    TwoSums<T> sums[block_threads];
  };
  // A row of up to 8 * 256 elements stays in registers: x is read from memory once.
  struct Kept {
    T v[group_size];
  };
  RowBlocks shape;
  const T *x, *gamma, *beta;
  double eps;
  T *y, *mean, *inverse;

  template <bool made, class F>
  FQ_HD void visit(std::int64_t row, int lane, Kept& kept, const F& f) const {
    const T* own = x + row * shape.length;
    const auto load = [&](std::int64_t first, int count, Kept& to) { load_group(own + first, count, to.v); };
    visit_lane_values<made>(shape, lane, kept, load, f);
  }
  /// Sums differences to the first element of the row, so that squares do not cancel.
  FQ_HD TwoSums<T> part(std::int64_t row, int lane, Kept& kept) const {
    TwoSums<T> sum{};
    const T origin = x[row * shape.length];
    visit<false>(row, lane, kept, [&](std::int64_t, int count, const Kept& of) {
      for (int j = 0; j < group_size; ++j)
        if (j < count) sum.add_difference(of.v[j], origin);
    });
    return sum;
  }
  // The mean and the inverse deviation are rounded to T once and saved for backward.
  FQ_HD void finish(std::int64_t row, const TwoSums<T>& sum) const {
    const double n = static_cast<double>(shape.length), offset = sum.first.value() / n;
    // Rounding may give a small negative variance.
    const double squares = sum.second.value() / n - offset * offset;
    mean[row] = static_cast<T>(static_cast<double>(x[row * shape.length]) + offset);
    inverse[row] = static_cast<T>(1.0 / std::sqrt((squares > 0.0 ? squares : 0.0) + eps));
  }
  FQ_HD void write(std::int64_t row, int lane, Kept& kept) const {
    const T center = mean[row], factor = inverse[row];
    visit<true>(row, lane, kept, [&](std::int64_t first, int count, Kept& of) {
      T g[group_size], b[group_size];
      load_or(gamma, T{1}, first, count, g);
      load_or(beta, T{0}, first, count, b);
      for (int j = 0; j < group_size; ++j)
        if (j < count) of.v[j] = layer_norm_value(layer_normal(of.v[j], center, factor), g[j], b[j]);
      store_group(y + row * shape.length + first, count, of.v);
    });
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared, Kept& kept) const {
    const auto p = shape.place(t);
    if (p.row >= shape.rows) return;
    if (Phase == 0) shared.sums[t.thread] = part(p.row, p.lane, kept);
    if constexpr (0 < Phase && Phase < 4) join_lanes<Phase - 1>(shape, p, shared.sums, JoinSums{});
    // One thread per row writes the statistics, which all threads read in the next phase.
    if (Phase == 3 && p.lane == 0) finish(p.row, shared.sums[p.first]);
    if (Phase == 4) write(p.row, p.lane, kept);
  }
};

template <class T>
struct RmsForward {
  static constexpr int phases = 2 + join_phases;
  struct Shared {
    SumOf<T> sums[block_threads];
  };
  // A row of up to 8 * 256 elements stays in registers: x is read from memory once.
  struct Kept {
    T v[group_size];
  };
  RowBlocks shape;
  const T *x, *gamma;
  T share, eps;  // share: 1 / length
  T *y, *roots;

  template <bool made, class F>
  FQ_HD void visit(std::int64_t row, int lane, Kept& kept, const F& f) const {
    const T* own = x + row * shape.length;
    const auto load = [&](std::int64_t first, int count, Kept& to) { load_group(own + first, count, to.v); };
    visit_lane_values<made>(shape, lane, kept, load, f);
  }
  FQ_HD SumOf<T> part(std::int64_t row, int lane, Kept& kept) const {
    SumOf<T> sum{};
    visit<false>(row, lane, kept, [&](std::int64_t, int count, const Kept& of) {
      for (int j = 0; j < group_size; ++j)
        if (j < count) sum.add(of.v[j] * of.v[j]);  // each square is rounded to T, as on the host
    });
    return sum;
  }
  FQ_HD void write(std::int64_t row, int lane, T root, Kept& kept) const {
    visit<true>(row, lane, kept, [&](std::int64_t first, int count, Kept& of) {
      T g[group_size];
      load_or(gamma, T{1}, first, count, g);
      for (int j = 0; j < group_size; ++j)
        if (j < count) of.v[j] = rms_normal(of.v[j], root) * g[j];
      store_group(y + row * shape.length + first, count, of.v);
    });
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared, Kept& kept) const {
    const auto p = shape.place(t);
    if (p.row >= shape.rows) return;
    if (Phase == 0) shared.sums[t.thread] = part(p.row, p.lane, kept);
    if constexpr (0 < Phase && Phase < 4) join_lanes<Phase - 1>(shape, p, shared.sums, JoinSums{});
    if (Phase != 4) return;
    const T root = rms_root(static_cast<T>(shared.sums[p.first].value()), share, eps);
    if (p.lane == 0) roots[p.row] = root;
    write(p.row, p.lane, root, kept);
  }
};

}  // namespace

void layer_norm(const Tensor& x, std::int64_t length, const Tensor& gamma, const Tensor& beta, double eps,
                Tensor& y, Tensor& mean, Tensor& inverse) {
  const auto shape = RowBlocks::of(mean.numel(), length);
  visit_float(x.dtype(), [&]<class T>(T) {
    launch_stateful_blocks(
        x.device(), shape.blocks(),
        Forward<T>{shape, device_data<T>(x), device_data<T>(gamma), device_data<T>(beta), eps,
                   mutable_device_data<T>(y), mutable_device_data<T>(mean), mutable_device_data<T>(inverse)});
  });
}

void rms_norm(const Tensor& x, std::int64_t length, const Tensor& gamma, double eps, Tensor& y,
              Tensor& roots) {
  const auto shape = RowBlocks::of(roots.numel(), length);
  visit_float(x.dtype(), [&]<class T>(T) {
    launch_stateful_blocks(
        x.device(), shape.blocks(),
        RmsForward<T>{shape, device_data<T>(x), device_data<T>(gamma), row_share<T>(length),
                      static_cast<T>(eps), mutable_device_data<T>(y), mutable_device_data<T>(roots)});
  });
}

}  // namespace fq::cuda
