#pragma once

/// Normalization.
///
///     const Variable y = ops::layer_norm(x, gamma, beta);       // over the last axis of x [N, L, D]
///     const Variable z = ops::rms_norm(y, gamma, 1, 1e-6);
///
/// Statistics of batch_norm are summed in f64, those of the others in x's dtype, where the mean is taken off
/// before squares are summed; none depends on the number of threads. Undefined gamma and beta stand for ones
/// and zeros. The modules of layers/modules/norm.h own parameters and running statistics.

#include "fakequant/core/variable.h"

namespace fq::ops {

/// y = (x - mean[c]) / sqrt(var[c] + eps) * gamma[c] + beta[c], c a channel of axis 1 (Ioffe and Szegedy
/// 2015).
///
/// `x` is f32 or f64 [N, C], [N, C, L], [N, C, H, W] or [N, C, D, H, W]; 4-D output is channels_last. Sums of
/// integer products are not rounded before: statistics are those of the sums, and the result is sums again
/// (NormalizedSums). `gamma` and `beta` have x's dtype, [C], or are undefined for 1 and 0.
///
/// With `training` mean and variance (over N, not N - 1) are those of the batch and, as in PyTorch, running =
/// (1 - momentum) * running + momentum * batch is written in place, the batch variance unbiased (over N - 1);
/// undefined running tensors are left out, an empty batch changes nothing. Without `training` the running
/// tensors are used, and are constants for the gradient. Running tensors are f32 or f64 [C]. On `meta`
/// nothing is updated.
///
/// With `in_layer`, and without `training`, sums of integer products whose weights have scales fl(amax /
/// bound) have the bits that they have in the layer with the batch norm folded into it (layers/model/fold.h):
/// with f = gamma / sqrt(var + eps) the range amax' = fl(amax * |f|), the sums of the weights as they are,
/// and the bias fl((b - mean) * f + beta) on their grid.
///
/// Throws ArgumentError for other shapes, for training on one value a channel, and for evaluation without
/// running tensors.
[[nodiscard]] Variable batch_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                                  Tensor running_mean, Tensor running_var, bool training,
                                  double momentum = 0.1, double eps = 1e-5, bool in_layer = false);

/// y = (x - mean) / sqrt(var + eps) * gamma + beta, mean and variance over the last `axes` axes (Ba, Kiros,
/// Hinton 2016).
///
/// `x` is f32 or f64; `gamma` and `beta` have the shape of those axes, or are undefined for 1 and 0. The
/// output is row-major. Throws ArgumentError unless 1 <= axes <= rank and the shapes agree.
[[nodiscard]] Variable layer_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                                  int axes = 1, double eps = 1e-5);

/// y = x / sqrt(mean(x^2) + eps) * gamma over the last `axes` axes (Zhang and Sennrich, arXiv:1910.07467):
/// `layer_norm` without its mean and beta. `x` and `gamma` are as there.
[[nodiscard]] Variable rms_norm(const Variable& x, const Variable& gamma, int axes = 1, double eps = 1e-5);

/// y = (x - mean) / sqrt(var + eps) * gamma[c] + beta[c], mean and variance of each sample over the C /
/// groups channels of a group and all axes behind them (Wu and He, arXiv:1803.08494).
///
/// `x` is f32 or f64 [N, C, ..]; `gamma` and `beta` are [C], or undefined for 1 and 0. The output is
/// row-major. Throws ArgumentError unless the groups divide the channels.
[[nodiscard]] Variable group_norm(const Variable& x, std::int64_t groups, const Variable& gamma,
                                  const Variable& beta, double eps = 1e-5);
/// A group_norm with a group for each channel (Ulyanov et al., arXiv:1607.08022).
[[nodiscard]] Variable instance_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                                     double eps = 1e-5);

/// y = x / (k + alpha / size * sum of x^2 over `size` channels around)^beta (Krizhevsky et al. 2012). As in
/// ONNX the window has (size - 1) / 2 channels before and size / 2 behind, in whole numbers; PyTorch has them
/// the other way round where the size is even. `x` is f32 or f64 [N, C, ..].
[[nodiscard]] Variable local_response_norm(const Variable& x, std::int64_t size, double alpha = 1e-4,
                                           double beta = 0.75, double k = 1.0);

}  // namespace fq::ops
