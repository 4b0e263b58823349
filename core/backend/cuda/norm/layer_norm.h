#pragma once

/// Layer normalization of a matrix of rows. As fq::cpu has it; sums are made in f64.

#include "fakequant/core/tensor.h"

namespace fq::cuda {

void layer_norm(const Tensor& x, std::int64_t length, const Tensor& gamma, const Tensor& beta, double eps,
                Tensor& y, Tensor& mean, Tensor& inverse);
void layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Tensor& mean,
                         const Tensor& inverse, Tensor& dx, Tensor& dgamma, Tensor& dbeta);

}  // namespace fq::cuda
