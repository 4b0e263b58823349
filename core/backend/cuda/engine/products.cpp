#include "fakequant/core/backend/cuda/engine/conv.h"
#include "fakequant/core/backend/cuda/engine/exact.h"
#include "fakequant/core/backend/cuda/engine/matmul.h"
#include "fakequant/core/backend/kernel_columns.h"

namespace fq::cuda {

using fq::detail::Factor, fq::detail::Sharing;

// `Sharing` concerns the threads of the host only.
void multiply(const Factor& a, const Factor& b, Tensor& out, std::int64_t batch, Sharing) {
  gemm({a.tensor.raw(), a.tensor.dtype(), a.rows, a.columns, a.transposed},
       {b.tensor.raw(), b.tensor.dtype(), b.rows, b.columns, b.transposed}, {out.mutable_raw(), out.dtype()},
       batch, out.device());
}

void multiply_scaled(const Factor& a, const Factor& b, const Tensor& scale, const Tensor& bias, Tensor& y) {
  multiply(a, b, y, 1, Sharing::by_shape);
  scale_products(y, scale, bias);
}

void conv_forward(const ConvShape& shape, const Tensor& x, const Tensor& w, Tensor& y, Sharing) {
  conv_forward(shape, x.raw(), w.raw(), x.dtype(), y.mutable_raw(), y.device());
}

void conv_backward_data(const ConvShape& shape, const Tensor& dy, const Tensor& w, Tensor& dx, Sharing) {
  conv_backward_data(shape, dy.raw(), w.raw(), dy.dtype(), dx.mutable_raw(), dx.device());
}

void conv_backward_weights(const ConvShape& shape, const Tensor& x, const Tensor& dy, Tensor& dw) {
  conv_backward_weights(shape, x.raw(), dy.raw(), dy.dtype(), dw.mutable_raw(), dw.device());
}

void exact_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
                Tensor& sums) {
  exact_gemm(m, n, k, x, w, static_cast<std::int32_t*>(sums.mutable_raw()), sums.device());
}

void exact_batch(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x,
                 const Codes& w, Tensor& sums) {
  auto* out = static_cast<std::int32_t*>(sums.mutable_raw());
  // One product per matrix: ByteProducts pads and corrects each of them.
  for (std::int64_t i = 0; i < batch; ++i)
    exact_gemm(m, n, k, {static_cast<const char*>(x.data) + i * m * k, x.dtype, x.largest},
               {static_cast<const char*>(w.data) + i * n * k, w.dtype, w.largest}, out + i * m * n,
               sums.device());
}

void exact_conv(const ConvShape& shape, bool transposed, const Codes& x, const Codes& w, Tensor& sums) {
  auto* out = static_cast<std::int32_t*>(sums.mutable_raw());
  transposed ? exact_conv_transpose(shape, x, w, out, sums.device())
             : exact_conv(shape, x, w, out, sums.device());
}

// All supported GPUs multiply bf16 on tensor cores.
DType code_factor_dtype() { return DType::bf16; }

}  // namespace fq::cuda
