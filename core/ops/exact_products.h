#pragma once

/// Exact sums of products of codes on the device of the sums; not a public header. cpu/exact.h says what of.

#include "fakequant/core/product_shapes.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// sums [m, n] = x [m, k] * w [n, k] transposed, i32.
void exact_gemm(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w, Tensor& sums);
/// Channels_last sums of the convolution, i32, or of its transpose in x.
void exact_conv(const ConvShape& shape, bool transposed, const Codes& x, const Codes& w, Tensor& sums);

}  // namespace fq::detail
