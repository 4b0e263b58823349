#pragma once

/// Products of tensors, as backend/cpu/engine/products.h has them.

#include "fakequant/core/backend/product_shapes.h"

namespace fq::cuda {

void multiply(const fq::detail::Factor& a, const fq::detail::Factor& b, Tensor& out, std::int64_t batch,
              fq::detail::Sharing sharing);
void conv_forward(const fq::detail::ConvShape& shape, const Tensor& x, const Tensor& w, Tensor& y,
                  fq::detail::Sharing sharing);
void conv_backward_data(const fq::detail::ConvShape& shape, const Tensor& dy, const Tensor& w, Tensor& dx,
                        fq::detail::Sharing sharing);
void conv_backward_weights(const fq::detail::ConvShape& shape, const Tensor& x, const Tensor& dy, Tensor& dw);
void exact_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const fq::detail::Codes& x,
                const fq::detail::Codes& w, Tensor& sums);
void exact_batch(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k,
                 const fq::detail::Codes& x, const fq::detail::Codes& w, Tensor& sums);
void exact_conv(const fq::detail::ConvShape& shape, bool transposed, const fq::detail::Codes& x,
                const fq::detail::Codes& w, Tensor& sums);
/// bf16
[[nodiscard]] DType code_factor_dtype();

}  // namespace fq::cuda
