#include "fakequant/core/backend/cuda/loops/channels.cuh"
#include "fakequant/core/backend/cuda/loops/divisor.h"
#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/cuda/loops/sums.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/integer_moments.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/formulas.h"

namespace fq::cuda {
namespace {

/// Calls f(elements of x, T{}) with the type T of the computation.
template <class F>
void visit_rows(const Tensor& x, F&& f) {
  if (x.dtype() == DType::i32)
    f(device_data<std::int32_t>(x), float{});
  else
    visit_float(x.dtype(), [&]<class T>(T) { f(device_data<T>(x), T{}); });
}

/// Sums of differences to the first value of the channel, so that squares do not cancel.
// x: [rows, C]. Row 0 is the origin of each channel: any value of the channel serves.
template <class T>
struct MomentTerms {
  const T* x;
  FQ_HD void operator()(TwoSums<T>& sum, std::int64_t i, std::int64_t c) const {
    sum.add_difference(x[i], x[c]);
  }
};

// x[c] is row 0, the origin of the differences: mean = origin + offset.
template <class T>
struct PutMoments {
  const T* x;
  std::int64_t channels, rows;
  double* out;
  FQ_HD void operator()(std::int64_t c, const TwoSums<T>& sum) const {
    const double count = static_cast<double>(rows), offset = rows == 0 ? 0.0 : sum.first.value() / count;
    const double squares = rows == 0 ? 0.0 : sum.second.value() / count - offset * offset;
    out[c] = rows == 0 ? 0.0 : static_cast<double>(x[c]) + offset;
    // Rounding can give a small negative variance.
    out[channels + c] = squares > 0.0 ? squares : 0.0;
  }
};

struct IntegerTerms {
  const std::int32_t* x;
  FQ_HD void operator()(fq::detail::IntegerSums& sums, std::int64_t i, std::int64_t) const { sums.add(x[i]); }
};

struct PutIntegerMoments {
  std::int64_t channels, rows;
  double* out;
  FQ_HD void operator()(std::int64_t c, const fq::detail::IntegerSums& sums) const {
    out[c] = sums.mean(rows);
    out[channels + c] = sums.variance(rows);
  }
};

template <class X, class T>
struct GradientTerms {
  const T* dy;
  const X* x;
  const T* center;
  FQ_HD void operator()(TwoSums<T>& sum, std::int64_t i, std::int64_t c) const {
    sum.first.add(dy[i]);
    sum.second.add_product(dy[i], static_cast<T>(x[i]) - center[c]);
  }
};

struct PutSums {
  std::int64_t channels;
  double* out;
  template <class T>
  FQ_HD void operator()(std::int64_t c, const TwoSums<T>& sum) const {
    out[c] = sum.first.value();
    out[channels + c] = sum.second.value();
  }
};

/// Sets v[j] = numbers[(column + j) % channels].
template <int size, class T>
FQ_HD void load_channels(const T* numbers, std::int64_t channels, std::int64_t column, int count,
                         T (&v)[size]) {
  // A group may begin in one row and end in the next.
  if (column + count <= channels) return load_group(numbers + column, count, v);
  for (int j = 0; j < size; ++j) {
    if (j < count) v[j] = numbers[column];
    if (++column == channels) column = 0;
  }
}

template <class T>
struct Normalize {
  const T *x, *coefficients;
  Divisor channel_divisor;
  T* y;
  FQ_HD void operator()(std::int64_t first, int count) const {
    std::int64_t row = first;
    const std::int64_t channels = channel_divisor.value, column = channel_divisor.take_remainder(row);
    constexpr int size = pack_size<T>;
    T v[size], m[size], f[size], t[size];
    load_group(x + first, count, v);
    load_channels(coefficients, channels, column, count, m);
    load_channels(coefficients + channels, channels, column, count, f);
    load_channels(coefficients + 2 * channels, channels, column, count, t);
    for (int j = 0; j < size; ++j)
      if (j < count) v[j] = scalar::normalized(v[j], m[j], f[j], t[j]);
    store_group(y + first, count, v);
  }
};

// dx = dy * f + (x - center) * p + t. The sums over the batch are already in p and t.
template <class X, class T>
struct NormalizeBackward {
  const T* dy;
  const X* x;
  const T *center, *coefficients;
  Divisor channel_divisor;
  T* dx;
  FQ_HD void operator()(std::int64_t first, int count) const {
    std::int64_t row = first;
    const std::int64_t channels = channel_divisor.value, column = channel_divisor.take_remainder(row);
    constexpr int size = pack_size<T>;
    T g[size], v[size], m[size], f[size], p[size], t[size];
    load_group(dy + first, count, g);
    load_converted(x + first, count, v);
    load_channels(center, channels, column, count, m);
    load_channels(coefficients, channels, column, count, f);
    load_channels(coefficients + channels, channels, column, count, p);
    load_channels(coefficients + 2 * channels, channels, column, count, t);
    for (int j = 0; j < size; ++j)
      if (j < count) g[j] = scalar::normalized_gradient(g[j], v[j], m[j], f[j], p[j], t[j]);
    store_group(dx + first, count, g);
  }
};

}  // namespace

void moments(const Tensor& x, Tensor& out) {
  const std::int64_t channels = out.dim(1), rows = channels == 0 ? 0 : x.numel() / channels;
  const ChannelView view{channels, 1, x.numel()};
  if (x.dtype() == DType::i32) {
    const IntegerTerms terms{device_data<std::int32_t>(x)};
    return reduce_channels(x.device(), view, SumTerms<fq::detail::IntegerSums, IntegerTerms>{terms},
                           PutIntegerMoments{channels, rows, mutable_device_data<double>(out)});
  }
  visit_float(x.dtype(), [&]<class T>(T) {
    const auto* values = device_data<T>(x);
    reduce_channels(x.device(), view, SumTerms<TwoSums<T>, MomentTerms<T>>{{values}},
                    PutMoments<T>{values, channels, rows, mutable_device_data<double>(out)});
  });
}

void normalize(const Tensor& x, const Tensor& coefficients, Tensor& y) {
  visit_float(x.dtype(), [&]<class T>(T) {
    launch_groups<pack_size<T>>(x.device(), x.numel(),
                                Normalize<T>{device_data<T>(x), device_data<T>(coefficients),
                                             coefficients.dim(1), mutable_device_data<T>(y)});
  });
}

void gradient_sums(const Tensor& dy, const Tensor& x, const Tensor& center, Tensor& out) {
  const std::int64_t channels = out.dim(1);
  visit_rows(x, [&]<class X, class T>(const X* values, T) {
    reduce_channels(
        x.device(), {channels, 1, x.numel()},
        SumTerms<TwoSums<T>, GradientTerms<X, T>>{{device_data<T>(dy), values, device_data<T>(center)}},
        PutSums{channels, mutable_device_data<double>(out)});
  });
}

void normalize_backward(const Tensor& dy, const Tensor& x, const Tensor& center, const Tensor& coefficients,
                        Tensor& dx) {
  visit_rows(x, [&]<class X, class T>(const X* values, T) {
    launch_groups<pack_size<T>>(x.device(), x.numel(),
                                NormalizeBackward<X, T>{device_data<T>(dy), values, device_data<T>(center),
                                                        device_data<T>(coefficients), coefficients.dim(1),
                                                        mutable_device_data<T>(dx)});
  });
}

void forward_numbers(const fq::detail::BatchNormForward& numbers, std::int64_t channels, Device device) {
  // One thread per channel runs the functor of the host, with its bits.
  launch_each(device, channels, numbers);
}
void backward_numbers(const fq::detail::BatchNormBackward& numbers, std::int64_t channels, Device device) {
  launch_each(device, channels, numbers);
}

}  // namespace fq::cuda
