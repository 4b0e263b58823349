#pragma once

/// Biases of products whose channels lie innermost. f32 or f64.

#include "fakequant/core/tensor.h"

namespace fq::cuda {

/// y[.., c] += bias[c]
void add_bias(const Tensor& bias, Tensor& y);
/// db[c] = the sum of dy[.., c], in f64.
void bias_gradient(const Tensor& dy, Tensor& db);

}  // namespace fq::cuda
