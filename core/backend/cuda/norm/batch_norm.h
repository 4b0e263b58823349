#pragma once

/// Batch normalization of a matrix of rows by channels, innermost. As fq::cpu has it, on the device from end
/// to end; sums are made in f64.

#include "fakequant/core/backend/batch_norm_numbers.h"

namespace fq::cuda {

void moments(const Tensor& x, Tensor& out);
void normalize(const Tensor& x, const Tensor& coefficients, Tensor& y);
void gradient_sums(const Tensor& dy, const Tensor& x, const Tensor& center, Tensor& out);
void normalize_backward(const Tensor& dy, const Tensor& x, const Tensor& center, const Tensor& coefficients,
                        Tensor& dx);

void forward_numbers(const fq::detail::BatchNormForward& numbers, std::int64_t channels, Device device);
void backward_numbers(const fq::detail::BatchNormBackward& numbers, std::int64_t channels, Device device);

}  // namespace fq::cuda
