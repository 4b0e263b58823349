#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/reduce.cuh"
#include "fakequant/core/backend/cuda/loops/reduction_shape.h"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/cuda/norm/row_powers.cuh"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/row_formulas.h"

namespace fq::cuda {
namespace {

using fq::detail::IgnoredLabel;
using fq::detail::log_softmax_value;
using fq::detail::mean_or_zero;
using fq::detail::SmoothedTarget;

/// f32 or f64 values. The type is tested at run time: compiling a reduction takes seconds, and memory limits
/// its speed.
struct Floats {
  const void* values;
  bool wide;
  FQ_HD double operator[](std::int64_t i) const {
    return wide ? static_cast<const double*>(values)[i]
                : static_cast<double>(static_cast<const float*>(values)[i]);
  }
};
Floats as_floats(const Tensor& x) { return {device_data<void>(x), x.dtype() == DType::f64}; }

/// Sum over the counted rows, and their weights.
struct RowSum {
  double total, weight;
};
struct AddRows {
  FQ_HD RowSum operator()(const RowSum& a, const RowSum& b) const {
    return {a.total + b.total, a.weight + b.weight};
  }
};
// CUB calls the output functor once, on the device, so that no second launch is needed.
/// Sets totals [loss, weights] and the mean.
struct PutMean {
  double* totals;
  void* loss;
  bool wide;
  FQ_HD double operator()(const RowSum& sum) const {
    totals[0] = sum.total;
    const double mean = mean_or_zero(sum.total, sum.weight);
    if (wide)
      *static_cast<double*>(loss) = mean;
    else
      *static_cast<float*>(loss) = static_cast<float>(mean);
    return sum.weight;
  }
};

/// Sets the totals to the sum of terms(i), and loss to the mean.
template <class Terms>
void add_terms(std::int64_t items, Terms terms, Tensor& totals, Tensor& loss) {
  auto* sums = mutable_device_data<double>(totals);
  reduce_indices(loss.device(), items, terms, AddRows{}, RowSum{},
                 thrust::make_transform_output_iterator(
                     sums + 1, PutMean{sums, mutable_device_data<void>(loss), loss.dtype() == DType::f64}));
}

/// Writes the largest element and the logarithm of the sum of exponentials of each row.
template <class T>
struct RowStatistics {
  static constexpr int phases = RowPowers<T>::phases;
  using Shared = typename RowPowers<T>::Shared;
  using Kept = typename RowPowers<T>::Kept;
  RowPowers<T> powers;
  T* out;

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared, Kept& kept) const {
    const auto p = powers.shape.place(t);
    if (p.row >= powers.shape.rows) return;
    powers.template phase<Phase>(t, p, shared, kept);
    // The lane that joins the last sums of a row writes it.
    if (Phase + 1 < phases || p.lane != 0) return;
    out[2 * p.row] = shared.largest[p.first];
    out[2 * p.row + 1] = std::log(static_cast<T>(shared.sums[p.first].value()));
  }
};

/// log p of the classes, from the logits and the statistics of their rows.
struct LogRows {
  Floats x, statistics;
  std::int64_t classes;
  FQ_HD double operator()(std::int64_t row, std::int64_t c) const {
    const double v = x[row * classes + c], largest = statistics[2 * row], log_sum = statistics[2 * row + 1];
    if (x.wide) return log_softmax_value(v, largest, log_sum);
    return static_cast<double>(
        log_softmax_value(static_cast<float>(v), static_cast<float>(largest), static_cast<float>(log_sum)));
  }
};

/// Terms of a row. A label that is not a class adds nothing.
struct LabelTerms {
  LogRows log_p;
  const std::int64_t* labels;
  SmoothedTarget of;
  IgnoredLabel ignored;
  FQ_HD RowSum operator()(std::int64_t row) const {
    const std::int64_t label = labels[row];
    if (!ignored.counts(label)) return {0.0, 0.0};
    const double weight = of.weight(label);
    // Invalid labels have raised an alarm before. The kernel only must not read outside of the row.
    if (label < 0 || label >= of.classes) return {0.0, weight};
    return {-weight * log_p(row, label), weight};
  }
};

/// Terms of an element. The first element of a row adds the row's weight.
struct SmoothedTerms {
  LogRows log_p;
  const std::int64_t* labels;
  SmoothedTarget of;
  IgnoredLabel ignored;
  FQ_HD RowSum operator()(std::int64_t i) const {
    const std::int64_t row = quotient(i, of.classes), c = i - row * of.classes, label = labels[row];
    if (!ignored.counts(label)) return {0.0, 0.0};
    return {-of.target(c, label) * log_p(row, c), c == 0 ? of.weight(label) : 0.0};
  }
};

template <class T>
struct EntropyBackward {
  const T *x, *statistics;
  const std::int64_t* labels;
  SmoothedTarget of;
  IgnoredLabel ignored;
  const double* counted;
  const T* dy;
  T* dx;
  FQ_HD void operator()(std::int64_t first, int count) const {
    const T factor = static_cast<T>(mean_or_zero(static_cast<double>(*dy), *counted));
    // One division per group: the loop advances class and row.
    std::int64_t row = quotient(first, of.classes), c = first - row * of.classes;
    T v[group_size];
    load_group(x + first, count, v);
    for (int j = 0; j < group_size; ++j) {
      if (j < count) {
        const std::int64_t label = labels[row];
        const T all = static_cast<T>(of.targets(label));
        const T log_p = log_softmax_value(v[j], statistics[2 * row], statistics[2 * row + 1]);
        v[j] = ignored.counts(label) ? of.gradient(log_p, all, c, label, factor) : T{0};
      }
      if (++c < of.classes) continue;
      c = 0;
      ++row;
    }
    store_group(dx + first, count, v);
  }
};

SmoothedTarget smoothed_target(const LabelRule& rule, std::int64_t classes) {
  return {rule.smoothing, classes, device_data<double>(rule.weights)};
}

struct DistanceTerms {
  Floats a, b;
  FQ_HD RowSum operator()(std::int64_t i) const { return {fq::detail::squared_difference(a[i], b[i]), 1.0}; }
};

template <class T>
struct DistanceBackward {
  const T *a, *b, *dy;
  std::int64_t all;
  T *da, *db;
  FQ_HD void operator()(std::int64_t first, int count) const {
    const T factor = static_cast<T>(mean_or_zero(2.0 * static_cast<double>(*dy), all));
    T v[group_size], w[group_size];
    load_group(a + first, count, v);
    load_group(b + first, count, w);
    for (int j = 0; j < group_size; ++j) {
      if (j >= count) continue;
      v[j] = factor * (v[j] - w[j]);
      w[j] = -v[j];
    }
    store_group(da + first, count, v);
    store_group(db + first, count, w);
  }
};

}  // namespace

void cross_entropy(const Tensor& x, const Tensor& labels, const LabelRule& rule, Tensor& statistics,
                   Tensor& totals, Tensor& loss) {
  const std::int64_t rows = labels.numel(), classes = x.dim(1);
  visit_float(x.dtype(), [&]<class T>(T) {
    const auto shape = RowBlocks::of(rows, classes);
    launch_stateful_blocks(x.device(), shape.blocks(),
                           RowStatistics<T>{{shape, device_data<T>(x)}, mutable_device_data<T>(statistics)});
  });
  const LogRows log_p{as_floats(x), as_floats(statistics), classes};
  const auto* label = device_data<std::int64_t>(labels);
  const IgnoredLabel ignored(rule);
  const SmoothedTarget of = smoothed_target(rule, classes);
  // Smoothed targets need all classes of a row, plain labels one element.
  if (rule.smoothing > 0)
    add_terms(x.numel(), SmoothedTerms{log_p, label, of, ignored}, totals, loss);
  else
    add_terms(rows, LabelTerms{log_p, label, of, ignored}, totals, loss);
}

void cross_entropy_backward(const Tensor& x, const Tensor& statistics, const Tensor& labels,
                            const LabelRule& rule, const Tensor& totals, const Tensor& dy, Tensor& dx) {
  visit_float(x.dtype(), [&]<class T>(T) {
    launch_groups(
        dx.device(), dx.numel(),
        EntropyBackward<T>{device_data<T>(x), device_data<T>(statistics), device_data<std::int64_t>(labels),
                           smoothed_target(rule, x.dim(1)), IgnoredLabel(rule),
                           device_data<double>(totals) + 1, device_data<T>(dy), mutable_device_data<T>(dx)});
  });
}

void mse_loss(const Tensor& a, const Tensor& b, Tensor& loss) {
  Tensor totals = Tensor::empty({2}, DType::f64, loss.device());
  add_terms(a.numel(), DistanceTerms{as_floats(a), as_floats(b)}, totals, loss);
}

void mse_loss_backward(const Tensor& a, const Tensor& b, const Tensor& dy, Tensor& da, Tensor& db) {
  visit_float(a.dtype(), [&]<class T>(T) {
    launch_groups(a.device(), a.numel(),
                  DistanceBackward<T>{device_data<T>(a), device_data<T>(b), device_data<T>(dy), a.numel(),
                                      mutable_device_data<T>(da), mutable_device_data<T>(db)});
  });
}

}  // namespace fq::cuda
