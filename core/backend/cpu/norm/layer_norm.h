#pragma once

/// Layer normalization of a matrix of rows. f32 or f64, row-major.

#include <cstdint>

#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// y = (x - mean) * inverse * gamma + beta a row; mean and inverse ([rows], x's dtype) are put out.
/// gamma and beta may be undefined.
void layer_norm(const Tensor& x, std::int64_t length, const Tensor& gamma, const Tensor& beta, double eps,
                Tensor& y, Tensor& mean, Tensor& inverse);

/// dx, and the sums over rows dgamma and dbeta ([length], f64): parts over fixed blocks of rows, added in
/// order.
void layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& gamma, const Tensor& mean,
                         const Tensor& inverse, Tensor& dx, Tensor& dgamma, Tensor& dbeta);

}  // namespace fq::cpu
