#pragma once

/// The scales around products of codes.

#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// out[c] = fl(s_x * s_w[c % weights' scales])
void product_scale(const Tensor& s_x, const Tensor& s_w, Tensor& out);
/// y[.., c] = fl(y[.., c] * scale[c]) + bias[c]; `bias` may be undefined.
void scale_products(Tensor& y, const Tensor& scale, const Tensor& bias);
/// y = a * b with `scale_products` behind it, in one pass where that is faster.
void multiply_scaled(const detail::Factor& a, const detail::Factor& b, const Tensor& scale,
                     const Tensor& bias, Tensor& y);
/// out[.., c] = bf16(x[.., c] * scales[c % scales]) of `channels` innermost, as bf16 or f32.
void scale_to_bf16(const Tensor& x, const Tensor& scales, std::int64_t channels, Tensor& out);
/// The same of f32 and as many channels as `db` has, which becomes the `bias_gradient` of x: of many channels
/// in one pass.
void scale_and_sum(const Tensor& x, const Tensor& scales, Tensor& out, Tensor& db);
/// dw *= fl(s_x / s_w[c]), c along `axis`.
void scale_weight_gradient(Tensor& dw, const Tensor& s_x, const Tensor& s_w, int axis);

}  // namespace fq::cpu
