#include <vector>

#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/walk.h"
#include "fakequant/core/detail/convert.h"

namespace fq::cpu {
namespace {

template <class T, class F>
void broadcast(const Tensor& a, const Tensor& b, const Walk& walk, F f, Tensor& y) {
  const T *left = a.data<T>(a.layout()), *right = b.data<T>(b.layout());
  T* out = y.mutable_data<T>(y.layout());
  const std::int64_t inner = walk.inner(), i_step = walk.step(0), j_step = walk.step(1);
#pragma omp parallel for schedule(static) if (y.numel() > parallel_elements)
  for (std::int64_t row = 0; row < walk.rows(); ++row) {
    const T* p = left + walk.offset(0, row);
    const T* q = right + walk.offset(1, row);
    T* z = out + row * inner;
    // The usual strides have loops of their own, which the compiler vectorizes.
    if (i_step == 1 && j_step == 1)
#pragma omp simd
      for (std::int64_t i = 0; i < inner; ++i) z[i] = f(p[i], q[i]);
    else if (i_step == 1 && j_step == 0)
#pragma omp simd
      for (std::int64_t i = 0; i < inner; ++i) z[i] = f(p[i], q[0]);
    else
      for (std::int64_t i = 0; i < inner; ++i) z[i] = f(p[i * i_step], q[i * j_step]);
  }
}

template <class T, class Joined>
void reduce(const Tensor& x, const Walk& walk, Joined joined, Tensor& out) {
  // Joined is a sum, product, minimum or maximum, with `first` as its neutral element.
  std::vector<double> sums(static_cast<std::size_t>(out.numel()), Joined::first);
  const T* in = x.data<T>(x.layout());
  const std::int64_t inner = walk.inner(), step = walk.step(0);
  // Sequential in f64: the order of additions is part of the result.
  for (std::int64_t row = 0; x.numel() > 0 && row < walk.rows(); ++row) {
    const T* p = in + row * inner;
    double* s = sums.data() + walk.offset(0, row);
    for (std::int64_t i = 0; i < inner; ++i) joined.join(s[i * step], static_cast<double>(p[i]));
  }
  T* result = out.mutable_data<T>();
  for (std::size_t i = 0; i < sums.size(); ++i) result[i] = static_cast<T>(sums[i]);
}

}  // namespace

void combine(const Tensor& a, const Tensor& b, const detail::BinaryFunction& arithmetic, Tensor& y) {
  if (y.numel() == 0) return;
  const auto whole = [&y](const Tensor& x) { return x.shape() == y.shape() && x.layout() == y.layout(); };
  // Without broadcasting one flat loop suffices, in any layout.
  const bool alike = whole(a) && whole(b);
  const auto walk = broadcast_walk(placed(a), placed(b), placed(y));
  detail::visit_float(y.dtype(), "arithmetic", [&]<class T>(T) {
    std::visit([&](auto f) { alike ? map<T>(a, b, y, f) : broadcast<T>(a, b, walk, f, y); }, arithmetic);
  });
}

void scale(const Tensor& x, double factor, Tensor& y) {
  detail::visit_float(x.dtype(), "scale",
                      [&]<class T>(T) { map<T>(x, y, detail::Scaled<T>{static_cast<T>(factor)}); });
}

void reduce_axes(const Tensor& x, const detail::Reduction& reduction, Tensor& out) {
  const auto walk = sum_walk(placed(x), out.shape());
  detail::visit_float(x.dtype(), "reduction", [&]<class T>(T) {
    std::visit([&](auto f) { reduce<T>(x, walk, f, out); }, reduction);
  });
}

}  // namespace fq::cpu
