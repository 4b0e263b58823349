#include "fakequant/core/backend/cuda/loops/reduction_shape.h"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/cuda/norm/row_powers.cuh"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/row_formulas.h"

namespace fq::cuda {
namespace {

using fq::detail::log_softmax_value;
using fq::detail::softmax_gradient;
using fq::detail::softmax_power;
using fq::detail::softmax_term;
using fq::detail::softmax_value;

/// Returns y of one element, from the largest element of its line and the sum of exponentials.
template <class T>
FQ_HD T softmax_output(T x, T largest, double sum, bool logarithm) {
  // The sum has extra precision and is rounded to T once.
  const T total = static_cast<T>(sum);
  return logarithm ? log_softmax_value(x, largest, std::log(total)) : softmax_value(x, largest, total);
}

/// Lines of the softmax axis with `inner` elements between neighbours.
struct SoftmaxLines {
  std::int64_t size, inner;
  [[nodiscard]] FQ_HD std::int64_t first(std::int64_t line) const {
    const std::int64_t outer = quotient(line, inner);
    return outer * size * inner + (line - outer * inner);
  }
};

/// Softmax of one line per thread, for lines that are not contiguous: neighbouring threads read neighbours.
template <class T>
struct SoftmaxLine {
  SoftmaxLines lines;
  const T* x;
  bool logarithm;
  T* y;
  FQ_HD void operator()(std::int64_t line) const {
    const std::int64_t at = lines.first(line);
    // Three passes over the line: maximum, sum and result. The line does not fit into registers.
    const T *in = x + at, *end = in + lines.size * lines.inner;
    T largest = *in;
    for (const T* v = in; v != end; v += lines.inner)
      if (*v > largest) largest = *v;
    SumOf<T> sum{};
    for (const T* v = in; v != end; v += lines.inner) sum.add(softmax_power(*v, largest));
    for (std::int64_t i = 0; i < lines.size; ++i)
      y[at + i * lines.inner] = softmax_output(in[i * lines.inner], largest, sum.value(), logarithm);
  }
};

// dx = y * (dy - sum(dy * y)), or dy - exp(y) * sum(dy) for the logarithm.
template <class T>
struct SoftmaxLineBackward {
  SoftmaxLines lines;
  const T *dy, *y;
  bool logarithm;
  T* dx;
  FQ_HD void operator()(std::int64_t line) const {
    const std::int64_t at = lines.first(line);
    SumOf<T> sum{};
    for (std::int64_t i = 0; i < lines.size; ++i) {
      const std::int64_t j = at + i * lines.inner;
      sum.add(softmax_term(dy[j], y[j], logarithm));
    }
    for (std::int64_t i = 0; i < lines.size; ++i) {
      const std::int64_t j = at + i * lines.inner;
      dx[j] = softmax_gradient(dy[j], y[j], static_cast<T>(sum.value()), logarithm);
    }
  }
};

/// Softmax of contiguous lines.
template <class T>
struct SoftmaxRows {
  static constexpr int phases = RowPowers<T>::phases + 1;
  using Shared = typename RowPowers<T>::Shared;
  using Kept = typename RowPowers<T>::Kept;
  RowPowers<T> powers;
  bool logarithm;
  T* y;

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared, Kept& kept) const {
    const auto p = powers.shape.place(t);
    if (p.row >= powers.shape.rows) return;
    if constexpr (Phase < RowPowers<T>::phases) return powers.template phase<Phase>(t, p, shared, kept);
    const std::int64_t at = p.row * powers.shape.length;
    const T largest = shared.largest[p.first];
    const double sum = shared.sums[p.first].value();
    powers.template visit<true>(at, p.lane, kept, [&](std::int64_t first, int count, Kept& of) {
      for (int j = 0; j < group_size; ++j)
        if (j < count) of.v[j] = softmax_output(of.v[j], largest, sum, logarithm);
      store_group(y + at + first, count, of.v);
    });
  }
};

/// Gradient of contiguous lines.
template <class T>
struct SoftmaxRowsBackward {
  static constexpr int phases = 2 + join_phases;
  struct Shared {
    SumOf<T> sums[block_threads];
  };
  struct Kept {
    T g[group_size], v[group_size];
  };
  RowBlocks shape;
  const T *dy, *y;
  bool logarithm;
  T* dx;

  template <bool made, class F>
  FQ_HD void visit(std::int64_t at, int lane, Kept& kept, const F& f) const {
    const auto load = [&](std::int64_t first, int count, Kept& to) {
      load_group(dy + at + first, count, to.g);
      load_group(y + at + first, count, to.v);
    };
    visit_lane_values<made>(shape, lane, kept, load, f);
  }
  FQ_HD SumOf<T> lane_sum(std::int64_t at, int lane, Kept& kept) const {
    SumOf<T> sum{};
    visit<false>(at, lane, kept, [&](std::int64_t, int count, const Kept& of) {
      for (int j = 0; j < group_size; ++j)
        if (j < count) sum.add(softmax_term(of.g[j], of.v[j], logarithm));
    });
    return sum;
  }
  FQ_HD void write(std::int64_t at, int lane, T sum, Kept& kept) const {
    visit<true>(at, lane, kept, [&](std::int64_t first, int count, Kept& of) {
      for (int j = 0; j < group_size; ++j)
        if (j < count) of.g[j] = softmax_gradient(of.g[j], of.v[j], sum, logarithm);
      store_group(dx + at + first, count, of.g);
    });
  }

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared, Kept& kept) const {
    const auto p = shape.place(t);
    if (p.row >= shape.rows) return;
    const std::int64_t at = p.row * shape.length;
    if (Phase == 0) shared.sums[t.thread] = lane_sum(at, p.lane, kept);
    if constexpr (0 < Phase && Phase < 4) join_lanes<Phase - 1>(shape, p, shared.sums, JoinSums{});
    if (Phase == 4) write(at, p.lane, static_cast<T>(shared.sums[p.first].value()), kept);
  }
};

}  // namespace

void softmax(const Tensor& x, const AxisView& view, bool logarithm, Tensor& y) {
  if (x.numel() == 0) return;
  visit_float(x.dtype(), [&]<class T>(T) {
    auto* out = mutable_device_data<T>(y);
    const auto shape = RowBlocks::of(view.outer, view.size);
    if (view.inner == 1)
      launch_stateful_blocks(x.device(), shape.blocks(),
                             SoftmaxRows<T>{{shape, device_data<T>(x)}, logarithm, out});
    else
      // Other axes, for example class scores of images: neighbouring lines are adjacent in memory.
      launch_each(x.device(), view.outer * view.inner,
                  SoftmaxLine<T>{{view.size, view.inner}, device_data<T>(x), logarithm, out});
  });
}

void softmax_backward(const Tensor& dy, const Tensor& y, const AxisView& view, bool logarithm, Tensor& dx) {
  if (y.numel() == 0) return;
  visit_float(y.dtype(), [&]<class T>(T) {
    const T *g = device_data<T>(dy), *v = device_data<T>(y);
    auto* out = mutable_device_data<T>(dx);
    const auto shape = RowBlocks::of(view.outer, view.size);
    if (view.inner == 1)
      launch_stateful_blocks(y.device(), shape.blocks(), SoftmaxRowsBackward<T>{shape, g, v, logarithm, out});
    else
      launch_each(y.device(), view.outer * view.inner,
                  SoftmaxLineBackward<T>{{view.size, view.inner}, g, v, logarithm, out});
  });
}

}  // namespace fq::cuda
