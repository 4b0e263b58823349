#pragma once

/// Normalization.
///
///     const Variable y = ops::layer_norm(x, gamma, beta);       // over the last axis of x [N, L, D]
///     const Variable z = ops::rms_norm(y, gamma, 1, 1e-6);
///
/// batch_norm sums its statistics in f64. The other functions sum them in the dtype of x, and subtract the
/// mean before they sum squares. Results do not depend on the number of threads. Undefined gamma and beta
/// mean ones and zeros. The modules of layers/modules/norm.h own parameters and running statistics.

#include "fakequant/core/variable.h"

namespace fq::ops {

/// Returns y = (x - mean[c]) / sqrt(var[c] + eps) * gamma[c] + beta[c], where c is a channel of axis 1 (Ioffe
/// and Szegedy 2015).
///
/// `x` is f32 or f64 [N, C], [N, C, L], [N, C, H, W] or [N, C, D, H, W]; 4-D output is channels_last. Sums of
/// integer products are not rounded first: the statistics are computed from the sums, and the result is again
/// sums (NormalizedSums). `gamma` and `beta` are [C] in the dtype of x, or undefined for 1 and 0.
///
/// With `training`, the batch gives the mean and the variance (over N, not N - 1). Running tensors are
/// updated in place, as in PyTorch: running = (1 - momentum) * running + momentum * batch, with the unbiased
/// batch variance (over N - 1). Undefined running tensors are not updated, and an empty batch changes
/// nothing. Without `training` the running tensors are used, and are constants for the gradient. Running
/// tensors are f32 or f64 [C]. On `meta` nothing is updated.
///
/// With `in_layer` and without `training`, sums of integer products whose weights have scales fl(amax /
/// bound) get the bits of the layer with the batch norm folded into it (layers/model/fold.h). With f = gamma
/// / sqrt(var + eps), this layer has the range amax' = fl(amax * |f|), the same sums of codes, and the bias
/// fl((b - mean) * f + beta) on their grid.
///
/// Throws ArgumentError for other shapes, for training with one value per channel, and for evaluation without
/// running tensors.
[[nodiscard]] Variable batch_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                                  Tensor running_mean, Tensor running_var, bool training,
                                  double momentum = 0.1, double eps = 1e-5, bool in_layer = false);

/// Returns y = (x - mean) / sqrt(var + eps) * gamma + beta, with mean and variance over the last `axes` axes
/// (Ba, Kiros, Hinton 2016).
///
/// `x` is f32 or f64. `gamma` and `beta` have the shape of those axes, or are undefined for 1 and 0. The
/// output is row-major. Throws ArgumentError unless 1 <= axes <= rank and the shapes agree.
[[nodiscard]] Variable layer_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                                  int axes = 1, double eps = 1e-5);

/// Returns y = x / sqrt(mean(x^2) + eps) * gamma over the last `axes` axes (Zhang and Sennrich,
/// arXiv:1910.07467): `layer_norm` without mean and beta. The requirements for `x` and `gamma` are the same.
[[nodiscard]] Variable rms_norm(const Variable& x, const Variable& gamma, int axes = 1, double eps = 1e-5);

/// Returns y = (x - mean) / sqrt(var + eps) * gamma[c] + beta[c], with mean and variance of each sample over
/// the C / groups channels of a group and all following axes (Wu and He, arXiv:1803.08494).
///
/// `x` is f32 or f64 [N, C, ..]. `gamma` and `beta` are [C], or undefined for 1 and 0. The output is
/// row-major. Throws ArgumentError unless the groups divide the channels.
[[nodiscard]] Variable group_norm(const Variable& x, std::int64_t groups, const Variable& gamma,
                                  const Variable& beta, double eps = 1e-5);
/// Applies `group_norm` with one group per channel (Ulyanov et al., arXiv:1607.08022).
[[nodiscard]] Variable instance_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                                     double eps = 1e-5);

/// Returns y = x / (k + alpha / size * sum of x^2 over `size` neighbouring channels)^beta (Krizhevsky et al.
/// 2012). As in ONNX, the window has (size - 1) / 2 channels before and size / 2 after, in integer division.
/// PyTorch swaps the two numbers for an even size. `x` is f32 or f64 [N, C, ..].
[[nodiscard]] Variable local_response_norm(const Variable& x, std::int64_t size, double alpha = 1e-4,
                                           double beta = 0.75, double k = 1.0);

}  // namespace fq::ops
