#pragma once

/// Products of tensors of any types: oneDNN's of f32 and bf16, loops of f64.

#include "fakequant/core/backend/product_shapes.h"

namespace fq::cpu {

/// out [batch, a.rows, b.columns] row-major, written whole; f32 of bf16 factors.
void multiply(const detail::Factor& a, const detail::Factor& b, Tensor& out, std::int64_t batch,
              detail::Sharing sharing);
/// Convolution of channels_last activations and row-major weights: y, dx and dw, f32 of bf16 factors.
void conv_forward(const detail::ConvShape& shape, const Tensor& x, const Tensor& w, Tensor& y,
                  detail::Sharing sharing);
void conv_backward_data(const detail::ConvShape& shape, const Tensor& dy, const Tensor& w, Tensor& dx,
                        detail::Sharing sharing);
void conv_backward_weights(const detail::ConvShape& shape, const Tensor& x, const Tensor& dy, Tensor& dw);
/// y[.., c] += bias[c] where the channels lie innermost in memory.
void add_bias(const Tensor& bias, Tensor& y);
/// db[c] = the sum of dy[.., c]; the same bits for any number of threads.
void bias_gradient(const Tensor& dy, Tensor& db);
void exact_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const detail::Codes& x,
                const detail::Codes& w, Tensor& sums);
/// The same for `batch` pairs of matrices that lie behind each other.
void exact_batch(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, const detail::Codes& x,
                 const detail::Codes& w, Tensor& sums);
void exact_conv(const detail::ConvShape& shape, bool transposed, const detail::Codes& x,
                const detail::Codes& w, Tensor& sums);
/// bf16 where this processor multiplies it right and its codes are not best multiplied in f32.
[[nodiscard]] DType code_factor_dtype();

}  // namespace fq::cpu
