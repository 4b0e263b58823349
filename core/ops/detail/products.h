#pragma once

/// What linear and convolution share: products of float tensors with their bias. f32 goes through the engine,
/// f64 through plain loops. On `meta` nothing is computed.

#include <string_view>

#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/tape.h"

namespace fq::detail {

/// Throws ArgumentError unless both are the same float type on the same device.
void check_factors(const Tensor& x, const Tensor& w, std::string_view function);
/// Throws ArgumentError unless `bias` is undefined or [channels] of the factors' dtype and device.
void check_bias(const Variable& bias, std::int64_t channels, const Variable& x, std::string_view function);

/// Of a product with that factor: f64 of f64, else f32.
[[nodiscard]] DType product_dtype(const Tensor& factor);

/// out [batch, a.rows, b.columns] row-major, written whole; f32 of bf16 factors.
void multiply(const Factor& a, const Factor& b, Tensor& out, std::int64_t batch = 1,
              Sharing sharing = Sharing::by_shape);

/// The same of one product of codes' numbers, with `scale_products` behind it; `bias` may be undefined.
void multiply_scaled(const Factor& a, const Factor& b, const Tensor& scale, const Variable& bias,
                     Tensor& out);

/// Convolution of channels_last activations and row-major weights: the new y, dx and dw, f32 of bf16 factors.
[[nodiscard]] Tensor conv_y(const ConvShape& shape, const Tensor& x, const Tensor& w,
                            Sharing sharing = Sharing::by_shape);
[[nodiscard]] Tensor conv_dx(const ConvShape& shape, const Tensor& dy, const Tensor& w,
                             Sharing sharing = Sharing::by_shape);
[[nodiscard]] Tensor conv_dw(const ConvShape& shape, const Tensor& x, const Tensor& dy);

/// y[.., c] += bias[c] where the channels lie innermost in memory: channels_last, or the last axis of
/// row-major.
void add_bias(Tensor& y, const Variable& bias);
/// sum over all but the innermost `channels` of dy; the same bits for any number of threads.
[[nodiscard]] Tensor bias_gradient(const Tensor& dy, std::int64_t channels);

}  // namespace fq::detail
