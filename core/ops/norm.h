#pragma once

/// Normalization.

#include "fakequant/core/variable.h"

namespace fq::ops {

/// y = (x - mean[c]) / sqrt(var[c] + eps) * gamma[c] + beta[c], a channel c of axis 1 (Ioffe and Szegedy
/// 2015).
///
/// `x` f32 or f64 [N, C], [N, C, L] or [N, C, H, W]; 4-D output is channels_last. `gamma`, `beta` of x's
/// dtype [C], or undefined for 1 and 0. With `training` mean and variance (over N, not N - 1) are those of
/// the batch and, as in PyTorch, running = (1 - momentum) * running + momentum * batch is written in place,
/// the batch variance unbiased (over N - 1); undefined running tensors are left out, an empty batch changes
/// nothing. Without `training` the running tensors are used, and constants for the gradient. Running tensors
/// are f32 or f64 [C]. On `meta` nothing is updated. Throws ArgumentError for other shapes, for training on
/// one value a channel, and for evaluation without running tensors.
[[nodiscard]] Variable batch_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                                  Tensor running_mean, Tensor running_var, bool training,
                                  double momentum = 0.1, double eps = 1e-5);

/// y = (x - mean) / sqrt(var + eps) * gamma + beta over the last `axes` axes (Ba, Kiros, Hinton 2016).
///
/// `x` f32 or f64; `gamma` and `beta` have the shape of those axes, or are undefined for 1 and 0. The output
/// is row-major. Throws ArgumentError unless 1 <= axes <= rank and the shapes agree.
[[nodiscard]] Variable layer_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                                  int axes = 1, double eps = 1e-5);

}  // namespace fq::ops
