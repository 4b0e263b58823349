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

/// Of rows that count.
struct RowSum {
  double total;
  std::int64_t rows;
};
struct AddRows {
  FQ_HD RowSum operator()(const RowSum& a, const RowSum& b) const {
    return {a.total + b.total, a.rows + b.rows};
  }
};
template <class T>
struct MeanOfRows {
  std::int64_t* counted;
  FQ_HD T operator()(const RowSum& sum) const {
    *counted = sum.rows;
    return static_cast<T>(mean_of(sum.total, sum.rows));
  }
};

/// Of a row; a label that is no class adds nothing.
template <class T>
struct LabelTerms {
  const T* log_p;
  const std::int64_t* labels;
  std::int64_t classes;
  IgnoredLabel ignored;
  FQ_HD RowSum operator()(std::int64_t row) const {
    const std::int64_t label = labels[row];
    if (!ignored.counts(label)) return {0.0, 0};
    if (label < 0 || label >= classes) return {0.0, 1};
    return {-static_cast<double>(log_p[row * classes + label]), 1};
  }
};

/// Of an element; a row counts with its first one.
template <class T>
struct SmoothedTerms {
  const T* log_p;
  const std::int64_t* labels;
  std::int64_t classes;
  SmoothedTarget target;
  IgnoredLabel ignored;
  FQ_HD RowSum operator()(std::int64_t i) const {
    const std::int64_t row = quotient(i, classes), c = i - row * classes, label = labels[row];
    if (!ignored.counts(label)) return {0.0, 0};
    return {-target.weight(c == label) * static_cast<double>(log_p[i]), c == 0 ? 1 : 0};
  }
};

template <class T>
struct EntropyBackward {
  const T* log_p;
  const std::int64_t* labels;
  std::int64_t classes;
  SmoothedTarget target;
  IgnoredLabel ignored;
  const std::int64_t* counted;
  const T* dy;
  T* dx;
  FQ_HD void operator()(std::int64_t first, int count) const {
    const T factor = static_cast<T>(mean_of(static_cast<double>(*dy), *counted));
    std::int64_t row = quotient(first, classes), c = first - row * classes;
    T v[group_size];
    load_group(log_p + first, count, v);
    for (int j = 0; j < group_size; ++j) {
      if (j < count)
        v[j] = ignored.counts(labels[row]) ? target.gradient(v[j], c == labels[row], factor) : T{0};
      if (++c < classes) continue;
      c = 0;
      ++row;
    }
    store_group(dx + first, count, v);
  }
};

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
  visit_float(log_p.dtype(), [&]<class T>(T) {
    const T* p = data_of<T>(log_p);
    const auto out = thrust::make_transform_output_iterator(
        mutable_data_of<T>(loss), MeanOfRows<T>{mutable_data_of<std::int64_t>(counted)});
    if (rule.smoothing > 0)
      reduce_indices(log_p.device(), rows * classes,
                     SmoothedTerms<T>{p, label, classes, SmoothedTarget(rule.smoothing, classes), ignored},
                     AddRows{}, RowSum{}, out);
    else
      reduce_indices(log_p.device(), rows, LabelTerms<T>{p, label, classes, ignored}, AddRows{}, RowSum{},
                     out);
  });
}

void cross_entropy_backward(const Tensor& log_p, const Tensor& labels, const LabelRule& rule,
                            const Tensor& counted, const Tensor& dy, Tensor& dx) {
  const std::int64_t classes = log_p.dim(1);
  visit_float(log_p.dtype(), [&]<class T>(T) {
    for_groups(dx.device(), dx.numel(),
               EntropyBackward<T>{data_of<T>(log_p), data_of<std::int64_t>(labels), classes,
                                  SmoothedTarget(rule.smoothing, classes), IgnoredLabel(rule),
                                  data_of<std::int64_t>(counted), data_of<T>(dy), mutable_data_of<T>(dx)});
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
