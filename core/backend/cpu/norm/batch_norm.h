#pragma once

/// Batch normalization of a matrix of rows (pixels) by channels, innermost.
///
/// x is f32, f64, or i32 sums read as f32; dy, dx and y are f64 with f64, else f32, and so are coefficients:
/// rows of a number a channel. Sums are made of parts over fixed blocks of rows, added in order in f64: they
/// do not depend on the thread count.

#include "fakequant/core/backend/batch_norm_numbers.h"

namespace fq::cpu {

/// Mean and variance (over rows, not rows - 1) of each channel, f64 [2, C]; 0 of an empty x.
void moments(const Tensor& x, Tensor& out);
/// y = (x - center) * factor + shift; x floats, the coefficients in this order.
void normalize(const Tensor& x, const Tensor& coefficients, Tensor& y);

/// sum dy and sum dy * (x - center) of each channel, f64 [2, C].
void gradient_sums(const Tensor& dy, const Tensor& x, const Tensor& center, Tensor& out);
/// dx = dy * factor + (x - center) * slope + shift, the coefficients in this order; dx may be dy.
void normalize_backward(const Tensor& dy, const Tensor& x, const Tensor& center, const Tensor& coefficients,
                        Tensor& dx);

void forward_numbers(const detail::BatchNormForward& numbers, std::int64_t channels, Device device);
void backward_numbers(const detail::BatchNormBackward& numbers, std::int64_t channels, Device device);

}  // namespace fq::cpu
