#include "fakequant/core/backend/cuda/loops/channels.cuh"
#include "fakequant/core/backend/cuda/loops/row_blocks.cuh"
#include "fakequant/core/backend/cuda/loops/sums.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/row_formulas.h"

namespace fq::cuda {
namespace {

using fq::detail::layer_norm_gradient;
using fq::detail::layer_norm_value;
using fq::detail::layer_normal;
using fq::detail::rms_norm_gradient;
using fq::detail::rms_normal;
using fq::detail::rms_root;

// gamma and beta are optional.
template <class T>
FQ_HD void load_or(const T* p, T otherwise, std::int64_t first, int count, T (&v)[group_size]) {
  if (p != nullptr) return load_group(p + first, count, v);
  for (T& each : v) each = otherwise;
}

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
struct Backward {
  static constexpr int phases = 2 + join_phases;
  struct Shared {
    TwoSums<T> sums[block_threads];
  };
  // The first group of each thread stays in registers between the sums and the result.
  struct Kept {
    T g[group_size], normal[group_size];
  };
  RowBlocks shape;
  const T *dy, *x, *gamma, *mean, *inverse;
  T* dx;

  /// Loads g = dy * gamma and the normalized values of a group of the row's elements.
  FQ_HD void load(std::int64_t row, std::int64_t first, int count, Kept& to) const {
    const T center = mean[row], spread = inverse[row];
    T factor[group_size];
    load_group(dy + row * shape.length + first, count, to.g);
    load_group(x + row * shape.length + first, count, to.normal);
    load_or(gamma, T{1}, first, count, factor);
    for (int j = 0; j < group_size; ++j) {
      if (j >= count) continue;
      to.g[j] *= factor[j];
      to.normal[j] = layer_normal(to.normal[j], center, spread);
    }
  }
  template <bool made, class F>
  FQ_HD void visit(std::int64_t row, int lane, Kept& kept, const F& f) const {
    const auto own = [&](std::int64_t first, int count, Kept& to) { load(row, first, count, to); };
    visit_lane_values<made>(shape, lane, kept, own, f);
  }
  FQ_HD TwoSums<T> part(std::int64_t row, int lane, Kept& kept) const {
    TwoSums<T> sum{};
    visit<false>(row, lane, kept, [&](std::int64_t, int count, const Kept& of) {
      for (int j = 0; j < group_size; ++j) {
        if (j >= count) continue;
        sum.first.add(of.g[j]);
        sum.second.add_product(of.g[j], of.normal[j]);
      }
    });
    return sum;
  }
  FQ_HD void write(std::int64_t row, int lane, const TwoSums<T>& sum, Kept& kept) const {
    const double n = static_cast<double>(shape.length);
    // dx = inverse * (g - mean(g) - normal * mean(g * normal)), g = dy * gamma.
    const T average = static_cast<T>(sum.first.value() / n), slope = static_cast<T>(sum.second.value() / n),
            spread = inverse[row];
    visit<true>(row, lane, kept, [&](std::int64_t first, int count, Kept& of) {
      for (int j = 0; j < group_size; ++j)
        if (j < count) of.g[j] = layer_norm_gradient(of.g[j], of.normal[j], spread, average, slope);
      store_group(dx + row * shape.length + first, count, of.g);
    });
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared, Kept& kept) const {
    const auto p = shape.place(t);
    if (p.row >= shape.rows) return;
    if (Phase == 0) shared.sums[t.thread] = part(p.row, p.lane, kept);
    if constexpr (0 < Phase && Phase < 4) join_lanes<Phase - 1>(shape, p, shared.sums, JoinSums{});
    if (Phase == 4) write(p.row, p.lane, shared.sums[p.first], kept);
  }
};

/// Gradients of gamma and beta, one column each: dy * normalized value, and dy.
template <class T>
struct ParameterTerms {
  const T *dy, *x, *mean, *inverse;
  std::int64_t length;
  FQ_HD void operator()(TwoSums<T>& sum, std::int64_t i, std::int64_t) const {
    // dx needs sums along each row. dgamma and dbeta need sums over the rows, which is a second pass.
    const std::int64_t row = quotient(i, length);
    sum.first.add_product(dy[i], layer_normal(x[i], mean[row], inverse[row]));
    sum.second.add(dy[i]);
  }
};

struct PutGradients {
  double *dgamma, *dbeta;
  template <class T>
  FQ_HD void operator()(std::int64_t c, const TwoSums<T>& sum) const {
    dgamma[c] = sum.first.value();
    dbeta[c] = sum.second.value();
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

template <class T>
struct RmsBackward {
  static constexpr int phases = 2 + join_phases;
  struct Shared {
    SumOf<T> sums[block_threads];
  };
  // The first group of each thread stays in registers between the sums and the result.
  struct Kept {
    T g[group_size], normal[group_size];
  };
  RowBlocks shape;
  const T *dy, *x, *gamma, *roots;
  T share;
  T* dx;

  /// Loads g = dy * gamma / root and the normalized values of a group of the row's elements.
  FQ_HD void load(std::int64_t row, std::int64_t first, int count, Kept& to) const {
    const T root = roots[row];
    T factor[group_size];
    load_group(dy + row * shape.length + first, count, to.g);
    load_group(x + row * shape.length + first, count, to.normal);
    load_or(gamma, T{1}, first, count, factor);
    for (int j = 0; j < group_size; ++j) {
      if (j >= count) continue;
      to.g[j] = rms_normal(to.g[j] * factor[j], root);
      to.normal[j] = rms_normal(to.normal[j], root);
    }
  }
  template <bool made, class F>
  FQ_HD void visit(std::int64_t row, int lane, Kept& kept, const F& f) const {
    const auto own = [&](std::int64_t first, int count, Kept& to) { load(row, first, count, to); };
    visit_lane_values<made>(shape, lane, kept, own, f);
  }
  FQ_HD SumOf<T> part(std::int64_t row, int lane, Kept& kept) const {
    SumOf<T> sum{};
    visit<false>(row, lane, kept, [&](std::int64_t, int count, const Kept& of) {
      for (int j = 0; j < group_size; ++j)
        if (j < count) sum.add_product(of.g[j], of.normal[j]);
    });
    return sum;
  }
  FQ_HD void write(std::int64_t row, int lane, T slope, Kept& kept) const {
    visit<true>(row, lane, kept, [&](std::int64_t first, int count, Kept& of) {
      for (int j = 0; j < group_size; ++j)
        if (j < count) of.g[j] = rms_norm_gradient(of.g[j], of.normal[j], slope);
      store_group(dx + row * shape.length + first, count, of.g);
    });
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared, Kept& kept) const {
    const auto p = shape.place(t);
    if (p.row >= shape.rows) return;
    if (Phase == 0) shared.sums[t.thread] = part(p.row, p.lane, kept);
    if constexpr (0 < Phase && Phase < 4) join_lanes<Phase - 1>(shape, p, shared.sums, JoinSums{});
    if (Phase == 4) write(p.row, p.lane, static_cast<T>(shared.sums[p.first].value()) * share, kept);
  }
};

/// Gradient of gamma, one column each: dy * normalized value.
template <class T>
struct GammaTerms {
  const T *dy, *x, *roots;
  std::int64_t length;
  FQ_HD void operator()(SumOf<T>& sum, std::int64_t i, std::int64_t) const {
    sum.add_product(dy[i], rms_normal(x[i], roots[quotient(i, length)]));
  }
};

template <class T>
struct PutGamma {
  T* dgamma;
  FQ_HD void operator()(std::int64_t c, const SumOf<T>& sum) const {
    dgamma[c] = static_cast<T>(sum.value());
  }
};

template <class T>
T share_of(std::int64_t length) {
  return static_cast<T>(1.0 / static_cast<double>(length));
}

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

void layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Tensor& mean,
                         const Tensor& inverse, Tensor& dx, Tensor& dgamma, Tensor& dbeta) {
  const std::int64_t length = dgamma.numel();
  const auto shape = RowBlocks::of(mean.numel(), length);
  visit_float(x.dtype(), [&]<class T>(T) {
    launch_stateful_blocks(
        x.device(), shape.blocks(),
        Backward<T>{shape, device_data<T>(dy), device_data<T>(x), device_data<T>(gamma), device_data<T>(mean),
                    device_data<T>(inverse), mutable_device_data<T>(dx)});
    const ParameterTerms<T> terms{device_data<T>(dy), device_data<T>(x), device_data<T>(mean),
                                  device_data<T>(inverse), length};
    reduce_channels(x.device(), {length, 1, x.numel()}, SumTerms<TwoSums<T>, ParameterTerms<T>>{terms},
                    PutGradients{mutable_device_data<double>(dgamma), mutable_device_data<double>(dbeta)});
  });
}

void rms_norm(const Tensor& x, std::int64_t length, const Tensor& gamma, double eps, Tensor& y,
              Tensor& roots) {
  const auto shape = RowBlocks::of(roots.numel(), length);
  visit_float(x.dtype(), [&]<class T>(T) {
    launch_stateful_blocks(
        x.device(), shape.blocks(),
        RmsForward<T>{shape, device_data<T>(x), device_data<T>(gamma), share_of<T>(length),
                      static_cast<T>(eps), mutable_device_data<T>(y), mutable_device_data<T>(roots)});
  });
}

void rms_norm_backward(const Tensor& dy, const Tensor& x, std::int64_t length, const Tensor& gamma,
                       const Tensor& roots, Tensor& dx, Tensor& dgamma) {
  const auto shape = RowBlocks::of(roots.numel(), length);
  visit_float(x.dtype(), [&]<class T>(T) {
    launch_stateful_blocks(
        x.device(), shape.blocks(),
        RmsBackward<T>{shape, device_data<T>(dy), device_data<T>(x), device_data<T>(gamma),
                       device_data<T>(roots), share_of<T>(length), mutable_device_data<T>(dx)});
    if (!dgamma.defined()) return;
    // dx needs sums along each row, dgamma sums over the rows: a second pass.
    const GammaTerms<T> terms{device_data<T>(dy), device_data<T>(x), device_data<T>(roots), length};
    reduce_channels(x.device(), {length, 1, x.numel()}, SumTerms<SumOf<T>, GammaTerms<T>>{terms},
                    PutGamma<T>{mutable_device_data<T>(dgamma)});
  });
}

}  // namespace fq::cuda
