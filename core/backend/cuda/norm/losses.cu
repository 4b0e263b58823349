#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/reduce.cuh"
#include "fakequant/core/backend/cuda/loops/reduction_shape.h"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/cuda/norm/softmax.h"
#include "fakequant/core/numerics/detail/row_formulas.h"

namespace fq::cuda {
namespace {

using fq::detail::IgnoredLabel;
using fq::detail::mean_of;
using fq::detail::SmoothedTarget;

struct AddDoubles {
  FQ_HD double operator()(double a, double b) const { return a + b; }
};

template <class T>
struct Mean {
  std::int64_t count;
  FQ_HD T operator()(double sum) const { return static_cast<T>(mean_of(sum, count)); }
};

/// terms(i) added up, as a mean of `count`.
template <class Terms, class T>
void mean_loss(Device device, std::int64_t items, std::int64_t count, Terms terms, T* loss) {
  reduce_indices(device, items, terms, AddDoubles{}, 0.0,
                 thrust::make_transform_output_iterator(loss, Mean<T>{count}));
}

/// Of rows that count, and their weights.
struct RowSum {
  double total, weight;
};
struct AddRows {
  FQ_HD RowSum operator()(const RowSum& a, const RowSum& b) const {
    return {a.total + b.total, a.weight + b.weight};
  }
};
template <class T>
struct MeanOfRows {
  double* counted;
  FQ_HD T operator()(const RowSum& sum) const {
    *counted = sum.weight;
    return static_cast<T>(mean_of(sum.total, sum.weight));
  }
};

/// Of a row; a label that is no class adds nothing.
template <class T>
struct LabelTerms {
  const T* log_p;
  const std::int64_t* labels;
  SmoothedTarget of;
  IgnoredLabel ignored;
  FQ_HD RowSum operator()(std::int64_t row) const {
    const std::int64_t label = labels[row];
    if (!ignored.counts(label)) return {0.0, 0.0};
    const double weight = of.weight(label);
    if (label < 0 || label >= of.classes) return {0.0, weight};
    return {-weight * static_cast<double>(log_p[row * of.classes + label]), weight};
  }
};

/// Of an element; a row counts with its first one.
template <class T>
struct SmoothedTerms {
  const T* log_p;
  const std::int64_t* labels;
  SmoothedTarget of;
  IgnoredLabel ignored;
  FQ_HD RowSum operator()(std::int64_t i) const {
    const std::int64_t row = quotient(i, of.classes), c = i - row * of.classes, label = labels[row];
    if (!ignored.counts(label)) return {0.0, 0.0};
    return {-of.target(c, label) * static_cast<double>(log_p[i]), c == 0 ? of.weight(label) : 0.0};
  }
};

template <class T>
struct EntropyBackward {
  const T* log_p;
  const std::int64_t* labels;
  SmoothedTarget of;
  IgnoredLabel ignored;
  const double* counted;
  const T* dy;
  T* dx;
  FQ_HD void operator()(std::int64_t first, int count) const {
    const T factor = static_cast<T>(mean_of(static_cast<double>(*dy), *counted));
    std::int64_t row = quotient(first, of.classes), c = first - row * of.classes;
    T v[group_size];
    load_group(log_p + first, count, v);
    for (int j = 0; j < group_size; ++j) {
      if (j < count) {
        const std::int64_t label = labels[row];
        const T all = static_cast<T>(of.targets(label));
        v[j] = ignored.counts(label) ? of.gradient(v[j], all, c, label, factor) : T{0};
      }
      if (++c < of.classes) continue;
      c = 0;
      ++row;
    }
    store_group(dx + first, count, v);
  }
};

SmoothedTarget target_of(const LabelRule& rule, std::int64_t classes) {
  return {rule.smoothing, classes, data_of<double>(rule.weights)};
}

template <class T>
struct DistanceTerms {
  const T *a, *b;
  FQ_HD double operator()(std::int64_t i) const { return fq::detail::squared_difference(a[i], b[i]); }
};

template <class T>
struct DistanceBackward {
  const T *a, *b, *dy;
  std::int64_t all;
  T *da, *db;
  FQ_HD void operator()(std::int64_t first, int count) const {
    const T factor = static_cast<T>(mean_of(2.0 * static_cast<double>(*dy), all));
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

void cross_entropy(const Tensor& log_p, const Tensor& labels, const LabelRule& rule, Tensor& loss,
                   Tensor& counted) {
  const std::int64_t classes = log_p.dim(1), rows = labels.numel();
  const auto* label = data_of<std::int64_t>(labels);
  const IgnoredLabel ignored(rule);
  const SmoothedTarget of = target_of(rule, classes);
  visit_float(log_p.dtype(), [&]<class T>(T) {
    const T* p = data_of<T>(log_p);
    const auto out = thrust::make_transform_output_iterator(mutable_data_of<T>(loss),
                                                            MeanOfRows<T>{mutable_data_of<double>(counted)});
    if (rule.smoothing > 0)
      reduce_indices(log_p.device(), rows * classes, SmoothedTerms<T>{p, label, of, ignored}, AddRows{},
                     RowSum{}, out);
    else
      reduce_indices(log_p.device(), rows, LabelTerms<T>{p, label, of, ignored}, AddRows{}, RowSum{}, out);
  });
}

void cross_entropy_backward(const Tensor& log_p, const Tensor& labels, const LabelRule& rule,
                            const Tensor& counted, const Tensor& dy, Tensor& dx) {
  visit_float(log_p.dtype(), [&]<class T>(T) {
    for_groups(dx.device(), dx.numel(),
               EntropyBackward<T>{data_of<T>(log_p), data_of<std::int64_t>(labels),
                                  target_of(rule, log_p.dim(1)), IgnoredLabel(rule), data_of<double>(counted),
                                  data_of<T>(dy), mutable_data_of<T>(dx)});
  });
}

void mse_loss(const Tensor& a, const Tensor& b, Tensor& loss) {
  visit_float(a.dtype(), [&]<class T>(T) {
    mean_loss(a.device(), a.numel(), a.numel(), DistanceTerms<T>{data_of<T>(a), data_of<T>(b)},
              mutable_data_of<T>(loss));
  });
}

void mse_loss_backward(const Tensor& a, const Tensor& b, const Tensor& dy, Tensor& da, Tensor& db) {
  visit_float(a.dtype(), [&]<class T>(T) {
    for_groups(a.device(), a.numel(),
               DistanceBackward<T>{data_of<T>(a), data_of<T>(b), data_of<T>(dy), a.numel(),
                                   mutable_data_of<T>(da), mutable_data_of<T>(db)});
  });
}

}  // namespace fq::cuda
