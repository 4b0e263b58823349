#pragma once

/// What products of codes are scaled by, forward and backward, on a GPU. With the bits of
/// ops/code_products.cpp and ops/code_gradients.cpp. Channels are innermost in memory; a tensor of scales
/// repeats along them.

#include "fakequant/core/tensor.h"

namespace fq::cuda {

/// out[c] = fl(s_x * s_w[c % weights' scales])
void product_scale(const Tensor& s_x, const Tensor& s_w, Tensor& out);
/// y[.., c] = fl(y[.., c] * scale[c]) + bias[c]; `bias` may be undefined.
void scale_products(Tensor& y, const Tensor& scale, const Tensor& bias);
/// out[.., c] = bf16(x[.., c] * scales[c]), as bf16 or f32.
void scale_to_bf16(const Tensor& x, const Tensor& scales, std::int64_t channels, Tensor& out);
/// dw *= fl(s_x / s_w[c]), c along `axis`.
void scale_weight_gradient(Tensor& dw, const Tensor& s_x, const Tensor& s_w, int axis);

}  // namespace fq::cuda
