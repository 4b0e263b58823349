#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/reduce.cuh"
#include "fakequant/core/backend/cuda/loops/reduction_shape.h"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/cuda/norm/softmax.h"
#include "fakequant/core/numerics/detail/row_formulas.h"

namespace fq::cuda {
namespace {

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

/// Of a row; a label that is no class adds nothing.
template <class T>
struct LabelTerms {
  const T* log_p;
  const std::int64_t* labels;
  std::int64_t classes;
  FQ_HD double operator()(std::int64_t row) const {
    const std::int64_t label = labels[row];
    if (label < 0 || label >= classes) return 0.0;
    return -static_cast<double>(log_p[row * classes + label]);
  }
};

/// Of an element.
template <class T>
struct SmoothedTerms {
  const T* log_p;
  const std::int64_t* labels;
  std::int64_t classes;
  SmoothedTarget target;
  FQ_HD double operator()(std::int64_t i) const {
    const std::int64_t row = quotient(i, classes);
    return -target.weight(i - row * classes == labels[row]) * static_cast<double>(log_p[i]);
  }
};

template <class T>
struct EntropyBackward {
  const T* log_p;
  const std::int64_t* labels;
  std::int64_t classes, rows;
  SmoothedTarget target;
  const T* dy;
  T* dx;
  FQ_HD void operator()(std::int64_t first, int count) const {
    const T factor = static_cast<T>(mean_of(static_cast<double>(*dy), rows));
    std::int64_t row = quotient(first, classes), c = first - row * classes;
    T v[group_size];
    load_group(log_p + first, count, v);
    for (int j = 0; j < group_size; ++j) {
      if (j < count) v[j] = target.gradient(v[j], c == labels[row], factor);
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

void cross_entropy(const Tensor& log_p, const Tensor& labels, double smoothing, Tensor& loss) {
  const std::int64_t classes = log_p.dim(1), rows = labels.numel();
  const auto* label = data_of<std::int64_t>(labels);
  visit_float(log_p.dtype(), [&]<class T>(T) {
    const T* p = data_of<T>(log_p);
    T* out = mutable_data_of<T>(loss);
    if (smoothing > 0)
      mean_loss(log_p.device(), rows * classes, rows,
                SmoothedTerms<T>{p, label, classes, SmoothedTarget(smoothing, classes)}, out);
    else
      mean_loss(log_p.device(), rows, rows, LabelTerms<T>{p, label, classes}, out);
  });
}

void cross_entropy_backward(const Tensor& log_p, const Tensor& labels, double smoothing, const Tensor& dy,
                            Tensor& dx) {
  const std::int64_t classes = log_p.dim(1);
  visit_float(log_p.dtype(), [&]<class T>(T) {
    for_groups(
        dx.device(), dx.numel(),
        EntropyBackward<T>{data_of<T>(log_p), data_of<std::int64_t>(labels), classes, labels.numel(),
                           SmoothedTarget(smoothing, classes), data_of<T>(dy), mutable_data_of<T>(dx)});
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
