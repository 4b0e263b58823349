#include "fakequant/core/backend/cuda/loops/channels.cuh"
#include "fakequant/core/backend/cuda/loops/divisor.h"
#include "fakequant/core/backend/cuda/loops/sums.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"

namespace fq::cuda {
namespace {

// bias: [C]; y: [.., C] in memory order.
template <class T>
struct AddBias {
  const T* bias;
  Divisor channels;
  T* y;
  FQ_HD void operator()(std::int64_t i) const {
    std::int64_t row = i;
    y[i] += bias[channels.take_remainder(row)];
  }
};

// dy: [rows, C]. SumOf<float> is a pair of floats with about 48 bits.
template <class T>
struct BiasTerms {
  const T* dy;
  FQ_HD void operator()(SumOf<T>& sum, std::int64_t i, std::int64_t) const { sum.add(dy[i]); }
};

template <class T>
struct PutBias {
  T* db;
  FQ_HD void operator()(std::int64_t c, const SumOf<T>& sum) const { db[c] = static_cast<T>(sum.value()); }
};

template <class T>
void add_typed_bias(const Tensor& bias, Tensor& y) {
  launch_each(y.device(), y.numel(),
              AddBias<T>{device_data<T>(bias), bias.numel(), updated_device_data<T>(y)});
}

// Channels are innermost: inner is 1, and neighbouring threads read neighbouring channels.
template <class T>
void typed_bias_gradient(const Tensor& dy, Tensor& db) {
  reduce_channels(dy.device(), {db.numel(), 1, dy.numel()},
                  SumTerms<SumOf<T>, BiasTerms<T>>{{device_data<T>(dy)}},
                  PutBias<T>{mutable_device_data<T>(db)});
}

}  // namespace

void add_bias(const Tensor& bias, Tensor& y) {
  y.dtype() == DType::f64 ? add_typed_bias<double>(bias, y) : add_typed_bias<float>(bias, y);
}

void bias_gradient(const Tensor& dy, Tensor& db) {
  dy.dtype() == DType::f64 ? typed_bias_gradient<double>(dy, db) : typed_bias_gradient<float>(dy, db);
}

}  // namespace fq::cuda
