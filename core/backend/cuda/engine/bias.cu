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

// dy: [rows, C], scale: [1] or [C]. The same sums, and out = bf16(dy * scale) on the way.
template <class Out>
struct ScaledBiasTerms {
  const float *dy, *scale;
  std::int64_t scale_step;  // 0 for one scale
  Out* out;
  FQ_HD void operator()(SumOf<float>& sum, std::int64_t i, std::int64_t c) const {
    const float v = dy[i];
    sum.add(v);
    out[i] = static_cast<Out>(bfloat16(scalar::mul_(v, scale[c * scale_step])));
  }
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

template <class Out>
void typed_scale_and_sum(const Tensor& x, const Tensor& scales, Tensor& out, Tensor& db) {
  reduce_channels(x.device(), {db.numel(), 1, x.numel()},
                  SumTerms<SumOf<float>, ScaledBiasTerms<Out>>{
                      {device_data<float>(x), device_data<float>(scales), scales.numel() == 1 ? 0 : 1,
                       mutable_device_data<Out>(out)}},
                  PutBias<float>{mutable_device_data<float>(db)});
}

}  // namespace

void add_bias(const Tensor& bias, Tensor& y) {
  y.dtype() == DType::f64 ? add_typed_bias<double>(bias, y) : add_typed_bias<float>(bias, y);
}

void bias_gradient(const Tensor& dy, Tensor& db) {
  dy.dtype() == DType::f64 ? typed_bias_gradient<double>(dy, db) : typed_bias_gradient<float>(dy, db);
}

void scale_and_sum(const Tensor& x, const Tensor& scales, Tensor& out, Tensor& db) {
  out.dtype() == DType::bf16 ? typed_scale_and_sum<bfloat16>(x, scales, out, db)
                             : typed_scale_and_sum<float>(x, scales, out, db);
}

}  // namespace fq::cuda
