#include "fakequant/core/backend/cuda/loops/channels.cuh"
#include "fakequant/core/backend/cuda/loops/row_blocks.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/cuda/loops/two_sums.cuh"
#include "fakequant/core/backend/cuda/norm/layer_norm.h"
#include "fakequant/core/numerics/detail/row_formulas.h"

namespace fq::cuda {
namespace {

using fq::detail::layer_norm_gradient;
using fq::detail::layer_norm_value;
using fq::detail::layer_normal;

template <class T>
FQ_HD void load_or(const T* p, T otherwise, std::int64_t first, int count, T (&v)[group_size]) {
  if (p != nullptr) return load_group(p + first, count, v);
  for (T& each : v) each = otherwise;
}

template <class T>
struct Forward {
  static constexpr int phases = 4;
  struct Shared {
    TwoSums sums[block_threads];
  };
  RowBlocks shape;
  const T *x, *gamma, *beta;
  double eps;
  T *y, *mean, *inverse;

  /// Of what the elements are above the first, so that squares do not cancel.
  FQ_HD TwoSums part(const T* row, int lane) const {
    TwoSums sum{0.0, 0.0};
    for_lane(shape, lane, [&](std::int64_t first, int count) {
      T v[group_size];
      load_group(row + first, count, v);
      for (int j = 0; j < group_size; ++j)
        if (j < count) sum.add(static_cast<double>(v[j]) - static_cast<double>(row[0]));
    });
    return sum;
  }
  FQ_HD void finish(std::int64_t row, const TwoSums& sum) const {
    const double n = static_cast<double>(shape.length), offset = sum.first / n;
    const double squares = sum.second / n - offset * offset;
    mean[row] = static_cast<T>(static_cast<double>(x[row * shape.length]) + offset);
    inverse[row] = static_cast<T>(1.0 / std::sqrt((squares > 0.0 ? squares : 0.0) + eps));
  }
  FQ_HD void write(std::int64_t row, int lane) const {
    const std::int64_t at = row * shape.length;
    for_lane(shape, lane, [&](std::int64_t first, int count) {
      T v[group_size], g[group_size], b[group_size];
      load_group(x + at + first, count, v);
      load_or(gamma, T{1}, first, count, g);
      load_or(beta, T{0}, first, count, b);
      for (int j = 0; j < group_size; ++j)
        if (j < count) v[j] = layer_norm_value(layer_normal(v[j], mean[row], inverse[row]), g[j], b[j]);
      store_group(y + at + first, count, v);
    });
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    const auto p = shape.place(t);
    if (p.row >= shape.rows) return;
    if (Phase == 0) shared.sums[t.thread] = part(x + p.row * shape.length, p.lane);
    if (Phase == 1) join_neighbours(shape, p, shared.sums, JoinSums{});
    if (Phase == 2 && p.lane == 0) {
      join_row(shape, p, shared.sums, JoinSums{});
      finish(p.row, shared.sums[p.first]);
    }
    if (Phase == 3) write(p.row, p.lane);
  }
};

template <class T>
struct Backward {
  static constexpr int phases = 4;
  struct Shared {
    TwoSums sums[block_threads];
  };
  RowBlocks shape;
  const T *dy, *x, *gamma, *mean, *inverse;
  T* dx;

  /// g = dy * gamma and the normal, of a group of the row's elements.
  FQ_HD void load(std::int64_t row, std::int64_t first, int count, T (&g)[group_size],
                  T (&normal)[group_size]) const {
    T factor[group_size];
    load_group(dy + row * shape.length + first, count, g);
    load_group(x + row * shape.length + first, count, normal);
    load_or(gamma, T{1}, first, count, factor);
    for (int j = 0; j < group_size; ++j) {
      if (j >= count) continue;
      g[j] *= factor[j];
      normal[j] = layer_normal(normal[j], mean[row], inverse[row]);
    }
  }
  FQ_HD TwoSums part(std::int64_t row, int lane) const {
    TwoSums sum{0.0, 0.0};
    for_lane(shape, lane, [&](std::int64_t first, int count) {
      T g[group_size], normal[group_size];
      load(row, first, count, g, normal);
      for (int j = 0; j < group_size; ++j) {
        if (j >= count) continue;
        sum.first += static_cast<double>(g[j]);
        sum.second += static_cast<double>(g[j]) * static_cast<double>(normal[j]);
      }
    });
    return sum;
  }
  FQ_HD void write(std::int64_t row, int lane, const TwoSums& sum) const {
    const double n = static_cast<double>(shape.length);
    const T average = static_cast<T>(sum.first / n), slope = static_cast<T>(sum.second / n);
    for_lane(shape, lane, [&](std::int64_t first, int count) {
      T g[group_size], normal[group_size];
      load(row, first, count, g, normal);
      for (int j = 0; j < group_size; ++j)
        if (j < count) g[j] = layer_norm_gradient(g[j], normal[j], inverse[row], average, slope);
      store_group(dx + row * shape.length + first, count, g);
    });
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    const auto p = shape.place(t);
    if (p.row >= shape.rows) return;
    if (Phase == 0) shared.sums[t.thread] = part(p.row, p.lane);
    if (Phase == 1) join_neighbours(shape, p, shared.sums, JoinSums{});
    if (Phase == 2 && p.lane == 0) join_row(shape, p, shared.sums, JoinSums{});
    if (Phase == 3) write(p.row, p.lane, shared.sums[p.first]);
  }
};

/// The gradients of gamma and beta, a column each: dy * normal, and dy.
template <class T>
struct ParameterTerms {
  const T *dy, *x, *mean, *inverse;
  std::int64_t length;
  FQ_HD void operator()(TwoSums& sum, std::int64_t i, std::int64_t) const {
    const std::int64_t row = quotient(i, length);
    const double g = static_cast<double>(dy[i]);
    sum.first += g * static_cast<double>(layer_normal(x[i], mean[row], inverse[row]));
    sum.second += g;
  }
};

struct PutGradients {
  double *dgamma, *dbeta;
  FQ_HD void operator()(std::int64_t c, const TwoSums& sum) const {
    dgamma[c] = sum.first;
    dbeta[c] = sum.second;
  }
};

}  // namespace

void layer_norm(const Tensor& x, std::int64_t length, const Tensor& gamma, const Tensor& beta, double eps,
                Tensor& y, Tensor& mean, Tensor& inverse) {
  const auto shape = RowBlocks::of(mean.numel(), length);
  visit_float(x.dtype(), [&]<class T>(T) {
    for_blocks(x.device(), shape.blocks(),
               Forward<T>{shape, data_of<T>(x), data_of<T>(gamma), data_of<T>(beta), eps,
                          mutable_data_of<T>(y), mutable_data_of<T>(mean), mutable_data_of<T>(inverse)});
  });
}

void layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Tensor& mean,
                         const Tensor& inverse, Tensor& dx, Tensor& dgamma, Tensor& dbeta) {
  const std::int64_t length = dgamma.numel();
  const auto shape = RowBlocks::of(mean.numel(), length);
  visit_float(x.dtype(), [&]<class T>(T) {
    for_blocks(x.device(), shape.blocks(),
               Backward<T>{shape, data_of<T>(dy), data_of<T>(x), data_of<T>(gamma), data_of<T>(mean),
                           data_of<T>(inverse), mutable_data_of<T>(dx)});
    const ParameterTerms<T> terms{data_of<T>(dy), data_of<T>(x), data_of<T>(mean), data_of<T>(inverse),
                                  length};
    reduce_channels(x.device(), {length, 1, x.numel()}, SumTerms<ParameterTerms<T>>{terms},
                    PutGradients{mutable_data_of<double>(dgamma), mutable_data_of<double>(dbeta)});
  });
}

}  // namespace fq::cuda
