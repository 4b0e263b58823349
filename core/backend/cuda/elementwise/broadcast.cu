#include <algorithm>

#include "fakequant/core/backend/cuda/loops/channels.cuh"
#include "fakequant/core/backend/cuda/loops/map.cuh"
#include "fakequant/core/backend/cuda/loops/strides.cuh"
#include "fakequant/core/backend/cuda/loops/sums.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"

namespace fq::cuda {
namespace {

using cpu::Walk;

// a and b are read through their strides (0 along broadcast axes), y in memory order.
template <class T, class F>
struct Combine {
  const T *a, *b;
  T* y;
  Strides strides;
  F f;
  FQ_HD void operator()(std::int64_t first, int count) const {
    T v[pack_size<T>], w[pack_size<T>];
    load_strided(a, strides, 0, first, count, v);
    load_strided(b, strides, 1, first, count, w);
    for (int j = 0; j < pack_size<T>; ++j)
      if (j < count) v[j] = f(v[j], w[j]);
    store_group(y + first, count, v);
  }
};

template <class T, class F>
void combine_typed(const Tensor& a, const Tensor& b, const Strides& strides, F f, Tensor& y) {
  launch_groups<pack_size<T>>(
      y.device(), y.numel(),
      Combine<T, F>{device_data<T>(a), device_data<T>(b), mutable_device_data<T>(y), strides, f});
}

/// Kept axes of x, with their strides in `out` and in x, and summed axes, with their strides in x.
struct SumAxes {
  Strides kept, summed;
  bool together = true;  ///< whether the kept axes are contiguous

  explicit SumAxes(const Walk& walk) {
    // True after a summed axis that follows a kept one.
    bool ended = false;
    for (std::size_t i = 0; i < walk.sizes().size(); ++i) {
      const bool keeps = walk.strides(0)[i] != 0 || walk.sizes()[i] == 1;
      // Kept axes are contiguous if no summed axis lies between two of them.
      if (keeps && ended) together = false;
      if (!keeps && kept.rank > 0) ended = true;
      (keeps ? kept : summed).add(walk.sizes()[i], walk.strides(0)[i], walk.strides(1)[i]);
    }
  }
  [[nodiscard]] std::int64_t inner() const { return kept.rank == 0 ? 1 : kept.steps[1][kept.rank - 1]; }
};

template <class T, class Joined>
struct JoinElements {
  using Sum = double;
  const T* x;
  Joined joined;
  FQ_HD Sum zero() const { return Joined::first; }
  FQ_HD void add(Sum& sum, std::int64_t i, std::int64_t) const {
    joined.join(sum, static_cast<double>(x[i]));
  }
  FQ_HD void join(Sum& sum, const Sum& other) const { joined.join(sum, other); }
};

// Sums have extra precision. Products, minima and maxima are joined in f64.
template <class T>
struct JoinElements<T, fq::detail::Total> {
  using Sum = SumOf<T>;
  const T* x;
  fq::detail::Total joined;
  FQ_HD Sum zero() const { return {}; }
  FQ_HD void add(Sum& sum, std::int64_t i, std::int64_t) const { sum.add(x[i]); }
  FQ_HD void join(Sum& sum, const Sum& other) const { sum.join(other); }
};

template <class T>
struct PutSum {
  T* out;
  Strides kept;
  FQ_HD void operator()(std::int64_t c, double sum) const { out[kept.offset(0, c)] = static_cast<T>(sum); }
  template <class Sum>
  FQ_HD void operator()(std::int64_t c, const Sum& sum) const {
    (*this)(c, sum.value());
  }
};

/// Sums over axes that are not contiguous: one thread per element of the result.
template <class T, class Joined>
struct GatherSum {
  JoinElements<T, Joined> elements;
  Strides kept, summed;
  std::int64_t count;
  PutSum<T> put;
  FQ_HD void operator()(std::int64_t c) const {
    const std::int64_t first = kept.offset(1, c);
    auto sum = elements.zero();
    for (std::int64_t k = 0; k < count; ++k) elements.add(sum, first + summed.offset(1, k), c);
    put(c, sum);
  }
};

template <class T, class Joined>
void reduce(const Tensor& x, const Walk& walk, Joined joined, Tensor& out) {
  const SumAxes axes(walk);
  const std::int64_t channels = out.numel();
  const JoinElements<T, Joined> elements{device_data<T>(x), joined};
  const PutSum<T> put{mutable_device_data<T>(out), axes.kept};
  if (axes.together)
    reduce_channels(x.device(), {channels, axes.inner(), x.numel()}, elements, put);
  else
    // This case has little parallelism, but it is rare: a summed axis between two kept ones.
    launch_each(x.device(), channels,
                GatherSum<T, Joined>{elements, axes.kept, axes.summed,
                                     channels == 0 ? 0 : x.numel() / channels, put});
}

}  // namespace

void combine(const Tensor& a, const Tensor& b, const fq::detail::BinaryFunction& arithmetic, Tensor& y) {
  if (y.numel() == 0) return;
  const auto strides = Strides::of(cpu::broadcast_walk(cpu::placed(a), cpu::placed(b), cpu::placed(y)));
  visit_float(y.dtype(), [&]<class T>(T) {
    std::visit([&](auto f) { combine_typed<T>(a, b, strides, f, y); }, arithmetic);
  });
}

void scale(const Tensor& x, double factor, Tensor& y) {
  visit_float(x.dtype(), [&]<class T>(T) { map<T>(x, y, fq::detail::Scaled<T>{static_cast<T>(factor)}); });
}

void reduce_axes(const Tensor& x, const fq::detail::Reduction& reduction, Tensor& out) {
  const auto walk = cpu::sum_walk(cpu::placed(x), out.shape());
  visit_float(x.dtype(), [&]<class T>(T) {
    std::visit([&](auto joined) { reduce<T>(x, walk, joined, out); }, reduction);
  });
}

}  // namespace fq::cuda
