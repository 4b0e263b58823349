#include <algorithm>

#include "fakequant/core/backend/cpu/engine/column_sums.h"
#include "fakequant/core/backend/cpu/engine/exact.h"
#include "fakequant/core/backend/cpu/engine/loops.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/detail/convert.h"

namespace fq::cpu {
namespace {

using detail::Codes, detail::Factor;

constexpr auto kChannelsLast = Layout::channels_last;

template <class T>
void multiply_loops(const detail::Factor& a, const detail::Factor& b, T* out, std::int64_t batch) {
  const std::int64_t m = a.rows, n = b.columns, k = a.columns;
  for (std::int64_t i = 0; i < batch; ++i)
    reference_gemm<T>(m, n, k, a.tensor.data<T>() + i * m * k, a.transposed, b.tensor.data<T>() + i * k * n,
                      b.transposed, out + i * m * n);
}

}  // namespace

void multiply(const Factor& a, const Factor& b, Tensor& out, std::int64_t batch, Sharing sharing) {
  if (out.dtype() == DType::f64) return multiply_loops(a, b, out.mutable_data<double>(), batch);
  gemm({a.tensor.raw(), a.tensor.dtype(), a.rows, a.columns, a.transposed},
       {b.tensor.raw(), b.tensor.dtype(), b.rows, b.columns, b.transposed}, out.mutable_data<float>(), batch,
       sharing);
}

void conv_forward(const ConvShape& shape, const Tensor& x, const Tensor& w, Tensor& y, Sharing sharing) {
  if (y.dtype() == DType::f64)
    return reference_conv_forward<double>(shape, x.data<double>(kChannelsLast), w.data<double>(),
                                          y.mutable_data<double>(kChannelsLast));
  conv_forward(shape, x.raw(), x.dtype(), w.raw(), w.dtype(), y.mutable_data<float>(kChannelsLast), sharing);
}

void conv_backward_data(const ConvShape& shape, const Tensor& dy, const Tensor& w, Tensor& dx,
                        Sharing sharing) {
  if (dx.dtype() != DType::f64)
    return conv_backward_data(shape, dy.raw(), w.raw(), dy.dtype(), dx.mutable_data<float>(kChannelsLast),
                              sharing);
  std::fill_n(dx.mutable_data<double>(kChannelsLast), dx.numel(), 0.0);
  reference_conv_backward_data(shape, dy.data<double>(kChannelsLast), w.data<double>(),
                               dx.mutable_data<double>(kChannelsLast));
}

void conv_backward_weights(const ConvShape& shape, const Tensor& x, const Tensor& dy, Tensor& dw) {
  if (dw.dtype() != DType::f64)
    return conv_backward_weights(shape, x.raw(), dy.raw(), dy.dtype(), dw.mutable_data<float>());
  std::fill_n(dw.mutable_data<double>(), dw.numel(), 0.0);
  reference_conv_backward_weights(shape, x.data<double>(kChannelsLast), dy.data<double>(kChannelsLast),
                                  dw.mutable_data<double>());
}

void add_bias(const Tensor& b, Tensor& y) {
  detail::visit_float(y.dtype(), "bias", [&]<class T>(T) {
    const std::int64_t channels = b.numel(), rows = y.numel() / channels;
    const T* from = b.data<T>();
    T* to = y.mutable_data<T>(y.layout());
#pragma omp parallel for schedule(static) if (rows * channels > 32768)
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < channels; ++c) to[r * channels + c] += from[c];
  });
}

void bias_gradient(const Tensor& dy, Tensor& db) {
  const std::int64_t channels = db.numel();
  detail::visit_float(dy.dtype(), "bias", [&]<class T>(T) {
    const T* from = dy.data<T>(dy.layout());
    sum_columns(dy.numel() / channels, channels, db.mutable_data<T>(), [&](std::int64_t r, T* sum) {
      for (std::int64_t c = 0; c < channels; ++c) sum[c] += from[r * channels + c];
    });
  });
}

void exact_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
                Tensor& sums) {
  exact_gemm(m, n, k, x, w, static_cast<std::int32_t*>(sums.mutable_raw()));
}

void exact_batch(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x,
                 const Codes& w, Tensor& sums) {
  exact_batch(batch, m, n, k, x, w, static_cast<std::int32_t*>(sums.mutable_raw()));
}

void exact_conv(const ConvShape& shape, bool transposed, const Codes& x, const Codes& w, Tensor& sums) {
  auto* out = static_cast<std::int32_t*>(sums.mutable_raw());
  transposed ? exact_conv_transpose(shape, x, w, out) : exact_conv(shape, x, w, out);
}

DType code_factor_dtype() {
  const bool bf16 = best_exact_type() != ExactType::f32 && exact_type_works(ExactType::bf16);
  return bf16 ? DType::bf16 : DType::f32;
}

}  // namespace fq::cpu
