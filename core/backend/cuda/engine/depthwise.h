#pragma once

/// Depthwise convolutions, each channel by itself: their products are too small for matrices. As conv.h and
/// exact.h have them, for the shapes that `takes_depthwise` names.

#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/device.h"
#include "fakequant/core/dtype.h"

namespace fq::cuda {

using fq::detail::Codes;
using fq::detail::ConvShape;

/// One channel and one output a group, channels in fours, images below 2^30 elements.
[[nodiscard]] bool takes_depthwise(const ConvShape& shape);

/// y [n, oh, ow, c] of f32 from x and w [c, 1, kh, kw] of `type`, f32 or bf16: taps are added in their order.
void depthwise_forward(const ConvShape& shape, const void* x, const void* w, DType type, float* y,
                       Device device);
/// dx [n, h, w, c]: taps are added in their order.
void depthwise_backward_data(const ConvShape& shape, const void* dy, const void* w, DType type, float* dx,
                             Device device);
/// dw [c, 1, kh, kw], added up in an order that depends on the shape alone.
void depthwise_backward_weights(const ConvShape& shape, const void* x, const void* dy, DType type, float* dw,
                                Device device);
/// int32 sums of codes: y of x, or, transposed, dx of dy.
void depthwise_codes(const ConvShape& shape, bool transposed, const Codes& x, const Codes& w,
                     std::int32_t* sums, Device device);

}  // namespace fq::cuda
