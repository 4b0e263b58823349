#include "fakequant/core/backend/cuda/codes/channel_reader.cuh"
#include "fakequant/core/backend/cuda/codes/group_codes.cuh"
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

/// Rows in memory.
template <class T>
struct PlainRows {
  const T* x;
  FQ_HD T at(std::int64_t i) const { return x[i]; }
  template <bool made>
  FQ_HD void load(std::int64_t first, int count, T (&v)[group_size]) const {
    load_group(x + first, count, v);
  }
};

/// Rows of sums plus x. The first load of an element writes it to `total`, the following ones read it there.
struct SummedRows {
  SumsPlusFloats sum;
  float* total;
  FQ_HD float at(std::int64_t i) const {
    float v[group_size];
    sum.values(i, 1, v);
    return v[0];
  }
  template <bool made>
  FQ_HD void load(std::int64_t first, int count, float (&v)[group_size]) const {
    if (made) return load_group(total + first, count, v);
    sum.values(first, count, v);
    store_group(total + first, count, v);
  }
};

/// Layer norm of rows: means, inverse deviations and values.
template <class T>
struct LayerNorm {
  using Sum = TwoSums<T>;
  const T *gamma, *beta;
  double eps;
  T *mean, *inverse;

  // Sums differences to the first element of the row, so that squares do not cancel.
  FQ_HD void add(Sum& sum, T v, T origin) const { sum.add_difference(v, origin); }
  // The mean and the inverse deviation are rounded to T once and saved for backward.
  FQ_HD void finish(std::int64_t row, std::int64_t length, const Sum& sum, T origin) const {
    const double n = static_cast<double>(length), offset = sum.first.value() / n;
    // Rounding may give a small negative variance.
    const double squares = sum.second.value() / n - offset * offset;
    mean[row] = static_cast<T>(static_cast<double>(origin) + offset);
    inverse[row] = static_cast<T>(1.0 / std::sqrt((squares > 0.0 ? squares : 0.0) + eps));
  }
  FQ_HD void values(std::int64_t row, std::int64_t column, int count, T (&v)[group_size]) const {
    const T center = mean[row], factor = inverse[row];
    T g[group_size], b[group_size];
    load_or(gamma, T{1}, column, count, g);
    load_or(beta, T{0}, column, count, b);
    for (int j = 0; j < group_size; ++j)
      if (j < count) v[j] = layer_norm_value(layer_normal(v[j], center, factor), g[j], b[j]);
  }
};

/// RMS norm of rows: roots and values.
template <class T>
struct RmsNorm {
  using Sum = SumOf<T>;
  const T* gamma;
  T share, eps;  // share: 1 / length
  T* roots;

  // Each square is rounded to T, as on the host.
  FQ_HD void add(Sum& sum, T v, T) const { sum.add(v * v); }
  FQ_HD void finish(std::int64_t row, std::int64_t, const Sum& sum, T) const {
    roots[row] = rms_root(static_cast<T>(sum.value()), share, eps);
  }
  FQ_HD void values(std::int64_t row, std::int64_t column, int count, T (&v)[group_size]) const {
    const T root = roots[row];
    T g[group_size];
    load_or(gamma, T{1}, column, count, g);
    for (int j = 0; j < group_size; ++j)
      if (j < count) v[j] = rms_normal(v[j], root) * g[j];
  }
};

/// Normalizes rows of a source. `Out` takes the values: PlainFloats or TensorCodes.
template <class T, class Norm, class Rows, class Out>
struct Forward {
  static constexpr int phases = 2 + join_phases;
  using Sum = typename Norm::Sum;
  struct Shared {
    Sum sums[block_threads];
  };
  // A row of up to 8 * 256 elements stays in registers: it is read from memory once.
  struct Kept {
    T v[group_size];
  };
  RowBlocks shape;
  Norm norm;
  Rows rows;
  Out out;

  template <bool made, class F>
  FQ_HD void visit(std::int64_t row, int lane, Kept& kept, const F& f) const {
    const std::int64_t begin = row * shape.length;
    const auto load = [&](std::int64_t first, int count, Kept& to) {
      rows.template load<made>(begin + first, count, to.v);
    };
    visit_lane_values<made>(shape, lane, kept, load, f);
  }
  FQ_HD Sum part(std::int64_t row, int lane, Kept& kept) const {
    Sum sum{};
    const T origin = rows.at(row * shape.length);
    visit<false>(row, lane, kept, [&](std::int64_t, int count, const Kept& of) {
      for (int j = 0; j < group_size; ++j)
        if (j < count) norm.add(sum, of.v[j], origin);
    });
    return sum;
  }
  FQ_HD void write(std::int64_t row, int lane, Kept& kept) const {
    visit<true>(row, lane, kept, [&](std::int64_t first, int count, Kept& of) {
      norm.values(row, first, count, of.v);
      out.put(row * shape.length + first, count, of.v);
    });
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared, Kept& kept) const {
    const auto p = shape.place(t);
    if (p.row >= shape.rows) return;
    if (Phase == 0) shared.sums[t.thread] = part(p.row, p.lane, kept);
    if constexpr (0 < Phase && Phase < 4) join_lanes<Phase - 1>(shape, p, shared.sums, JoinSums{});
    // One thread per row writes the statistics, which all threads read in the next phase.
    if (Phase == 3 && p.lane == 0)
      norm.finish(p.row, shape.length, shared.sums[p.first], rows.at(p.row * shape.length));
    if (Phase == 4) write(p.row, p.lane, kept);
  }
};

template <class T>
LayerNorm<T> layer_norm_of(const Tensor& gamma, const Tensor& beta, double eps, Tensor& mean,
                           Tensor& inverse) {
  return {device_data<T>(gamma), device_data<T>(beta), eps, mutable_device_data<T>(mean),
          mutable_device_data<T>(inverse)};
}
template <class T>
RmsNorm<T> rms_norm_of(const Tensor& gamma, std::int64_t length, double eps, Tensor& roots) {
  return {device_data<T>(gamma), row_share<T>(length), static_cast<T>(eps), mutable_device_data<T>(roots)};
}

template <class T, template <class> class Norm, class Rows, class Out>
void normalize(Device device, const RowBlocks& shape, const Norm<T>& norm, const Rows& rows, const Out& out) {
  launch_stateful_blocks(device, shape.blocks(), Forward<T, Norm<T>, Rows, Out>{shape, norm, rows, out});
}

template <class Norm, class Rows>
void normalize_from(const fq::detail::RowNormCall& call, const RowBlocks& shape, const Norm& norm,
                    const Rows& rows) {
  const Device device = call.x.device();
  if (call.y != nullptr)
    normalize(device, shape, norm, rows, PlainFloats<float>{mutable_device_data<float>(*call.y)});
  else
    normalize(device, shape, norm, rows, TensorCodes::of(*call.codes, call.nan_text));
}

template <class Norm>
void normalize_call(const fq::detail::RowNormCall& call, const RowBlocks& shape, const Norm& norm) {
  const auto* x = device_data<float>(call.x);
  if (call.sums == nullptr) return normalize_from(call, shape, norm, PlainRows<float>{x});
  const ChannelReader reader(*call.sums);
  normalize_from(call, shape, norm,
                 SummedRows{{reader.source(), x}, mutable_device_data<float>(*call.total)});
}

}  // namespace

void layer_norm(const Tensor& x, std::int64_t length, const Tensor& gamma, const Tensor& beta, double eps,
                Tensor& y, Tensor& mean, Tensor& inverse) {
  visit_float(x.dtype(), [&]<class T>(T) {
    normalize(x.device(), RowBlocks::of(mean.numel(), length),
              layer_norm_of<T>(gamma, beta, eps, mean, inverse), PlainRows<T>{device_data<T>(x)},
              PlainFloats<T>{mutable_device_data<T>(y)});
  });
}

void rms_norm(const Tensor& x, std::int64_t length, const Tensor& gamma, double eps, Tensor& y,
              Tensor& roots) {
  visit_float(x.dtype(), [&]<class T>(T) {
    normalize(x.device(), RowBlocks::of(roots.numel(), length), rms_norm_of<T>(gamma, length, eps, roots),
              PlainRows<T>{device_data<T>(x)}, PlainFloats<T>{mutable_device_data<T>(y)});
  });
}

void normalize_rows(const fq::detail::RowNormCall& call) {
  const auto shape = RowBlocks::of(call.inverse->numel(), call.length);
  if (call.rms)
    normalize_call(call, shape, rms_norm_of<float>(call.gamma, call.length, call.eps, *call.inverse));
  else
    normalize_call(call, shape,
                   layer_norm_of<float>(call.gamma, call.beta, call.eps, *call.mean, *call.inverse));
}

}  // namespace fq::cuda
