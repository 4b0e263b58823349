#pragma once

/// Convolutions of floats on the device, as in core/backend/cpu/engine/engine.h: f64, f32, or bf16 factors
/// with f32 results. Products are by cuBLASLt or, for bf16, by implicit GEMM. Activations are NHWC, weights
/// OIHW.

#include <cstdint>
#include <functional>

#include "fakequant/core/backend/cuda/engine/columns.h"
#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/device.h"
#include "fakequant/core/dtype.h"

namespace fq::cuda {

void conv_forward(const ConvShape& shape, const void* x, const void* w, DType type, void* y, Device device);
void conv_backward_data(const ConvShape& shape, const void* dy, const void* w, DType type, void* dx,
                        Device device);
void conv_backward_weights(const ConvShape& shape, const void* x, const void* dy, DType type, void* dw,
                           Device device);

/// Calls f(first image, number of images) for parts of `count` images of `bytes` each. The columns of a part
/// take at most 256 MiB.
void visit_images(std::int64_t count, std::int64_t bytes,
                  const std::function<void(std::int64_t, std::int64_t)>& f);

using fq::detail::Codes;
using fq::detail::ConvShape;

// Implicit GEMM: the kernels gather windows from the images, so that no columns are in memory. `transposed`
// computes the gradient in x: x is dy, and y is dx.

/// Returns whether the kernels below support the product of factors of `bytes` bytes (1: codes, 2: bf16), and
/// should be faster than cuBLASLt with columns.
[[nodiscard]] bool takes_implicit(const ConvShape& shape, bool transposed, int bytes, const void* x);
/// Returns the same for the gradient of the weights.
[[nodiscard]] bool takes_implicit_weights(const ConvShape& shape, const void* x, const void* dy);
/// Computes y in f32 from bf16 factors.
void implicit_conv(const ConvShape& shape, bool transposed, const void* x, const void* w, float* y,
                   Device device);
/// Computes exact int32 sums of u8 or i8 codes and i8 weights.
void implicit_conv_codes(const ConvShape& shape, bool transposed, const Codes& x, const Codes& w,
                         std::int32_t* sums, Device device);
/// Computes dw in f32 from bf16 factors, added in an order that depends only on the shape.
void implicit_conv_weights(const ConvShape& shape, const void* x, const void* dy, float* dw, Device device);

// Depthwise convolutions: each channel has its own filter, and products of one channel are too small for
// matrix kernels. Same arguments and results as above and in exact.h, for shapes that `takes_depthwise`
// accepts.

/// Returns whether the shape has one channel and one output per group, a number of channels divisible by 4,
/// and images below 2^30 elements.
[[nodiscard]] bool takes_depthwise(const ConvShape& shape);

/// Computes y [n, oh, ow, c] in f32 from x and w [c, 1, kh, kw] of `type`, f32 or bf16. Taps are added in
/// order.
void depthwise_forward(const ConvShape& shape, const void* x, const void* w, DType type, float* y,
                       Device device);
/// Computes dx [n, h, w, c]. Taps are added in order.
void depthwise_backward_data(const ConvShape& shape, const void* dy, const void* w, DType type, float* dx,
                             Device device);
/// Computes dw [c, 1, kh, kw], added in an order that depends only on the shape.
void depthwise_backward_weights(const ConvShape& shape, const void* x, const void* dy, DType type, float* dw,
                                Device device);
/// Computes int32 sums of codes: y from x or, transposed, dx from dy.
void depthwise_codes(const ConvShape& shape, bool transposed, const Codes& x, const Codes& w,
                     std::int32_t* sums, Device device);

}  // namespace fq::cuda
