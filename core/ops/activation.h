#pragma once

/// Activations: elementwise functions of one input.
///
///     const Variable y = ops::gelu(x);                    // exact: uses erf
///     const Variable z = ops::dropout(y, 0.1, true);      // training mode
///
/// Each function takes f32 or f64 of any shape. The output has the shape, dtype and layout of the input.
/// Codes and sums are converted to floats first unless stated otherwise. NaN stays NaN. Each function throws
/// ArgumentError for an undefined input or another dtype. layers/modules/activation.h has the matching
/// modules.

#include "fakequant/core/variable.h"

namespace fq::ops {

/// Returns max(x, 0), with gradient 0 at 0. For sums that are not rounded yet it only sets their `relu` flag,
/// which costs nothing: the operator that rounds the sums applies the ReLU and masks the gradient. For
/// unsigned codes it is the identity.
[[nodiscard]] Variable relu(const Variable& x);
/// Returns min(max(x, 0), 6). The gradient is 0 at both ends.
[[nodiscard]] Variable relu6(const Variable& x);
/// Returns min(max(x, low), high), as PyTorch's clamp and hardtanh. The gradient is 0 at both ends. Throws
/// ArgumentError unless low <= high.
[[nodiscard]] Variable clip(const Variable& x, double low, double high);
/// Returns x where x > 0, else slope * x. Throws ArgumentError for a negative slope.
[[nodiscard]] Variable leaky_relu(const Variable& x, double slope = 0.01);
/// Returns x * Phi(x), where Phi is the distribution function of the standard normal distribution, computed
/// with erf (Hendrycks and Gimpel, arXiv:1606.08415). With `approximate_tanh` it returns x/2 * (1 +
/// tanh(sqrt(2/pi) * (x + 0.044715 x^3))).
[[nodiscard]] Variable gelu(const Variable& x, bool approximate_tanh = false);
/// Returns x * sigmoid(x), also known as swish.
[[nodiscard]] Variable silu(const Variable& x);
/// Returns 1 / (1 + exp(-x)).
[[nodiscard]] Variable sigmoid(const Variable& x);
/// Returns the hyperbolic tangent.
[[nodiscard]] Variable tanh(const Variable& x);
/// Returns min(max(x / 6 + 1/2, 0), 1). The gradient is 0 at both ends.
[[nodiscard]] Variable hard_sigmoid(const Variable& x);
/// Returns x * hard_sigmoid(x) (Howard et al., arXiv:1905.02244). The gradient is 0 at -3 and 1 at 3.
[[nodiscard]] Variable hard_swish(const Variable& x);
/// Returns x where x > 0, else alpha * (exp(x) - 1) (Clevert et al., arXiv:1511.07289).
[[nodiscard]] Variable elu(const Variable& x, double alpha = 1.0);
/// Returns x where x > 0, else alpha * (exp(x / alpha) - 1) (Barron, arXiv:1704.07483). Throws ArgumentError
/// if alpha is 0.
[[nodiscard]] Variable celu(const Variable& x, double alpha = 1.0);
/// Returns 1.0507 * elu(x, 1.67326), with the constants in full precision (Klambauer et al.,
/// arXiv:1706.02515).
[[nodiscard]] Variable selu(const Variable& x);
/// Returns log(1 + exp(beta * x)) / beta, or x where beta * x > threshold, as PyTorch does. Throws
/// ArgumentError unless beta > 0.
[[nodiscard]] Variable softplus(const Variable& x, double beta = 1.0, double threshold = 20.0);
/// Returns x * tanh(softplus(x)) (Misra, arXiv:1908.08681).
[[nodiscard]] Variable mish(const Variable& x);
/// Returns log(sigmoid(x)), computed without overflow.
[[nodiscard]] Variable log_sigmoid(const Variable& x);
/// Returns x / (1 + |x|).
[[nodiscard]] Variable softsign(const Variable& x);
/// Returns x where x > 0, else slope * x (He et al., arXiv:1502.01852). `slope` gets a gradient. It has one
/// element, or one for each channel (axis 1), or broadcasts to x by NumPy's rule.
[[nodiscard]] Variable prelu(const Variable& x, const Variable& slope);
/// Returns the first half of x along `axis` times the sigmoid of the second half (Dauphin et al.,
/// arXiv:1612.08083). The result has half of the elements. Throws ArgumentError for an odd size.
[[nodiscard]] Variable glu(const Variable& x, int axis = -1);

/// With `training`, sets each element to 0 with probability p and divides the others by 1 - p, which keeps
/// the mean (Srivastava et al. 2014).
///
/// The choice of elements depends only on this thread's random stream (core/random.h): seed, step, the number
/// of dropouts in the step, and the logical row-major index of the element. It does not depend on layout,
/// device or threads. x is f32 or f64, and the result has the layout of x. Without `training`, or with p = 0,
/// the function returns x itself and records no operator. Throws ArgumentError unless 0 <= p <= 1.
[[nodiscard]] Variable dropout(const Variable& x, double p, bool training);

/// Dropout of channels, samples and blocks, and dropout that keeps mean and variance. As in `dropout`, the
/// choice depends on this thread's random stream alone: seed, step, the count of dropouts in the step and the
/// logical row-major index of the channel, sample or block. Without `training`, or with p = 0, each function
/// returns x itself and records no operator. f32 or f64. All throw ArgumentError unless 0 <= p <= 1.

/// Sets whole channels of x [N, C, ..] to 0 with probability p and divides the others by 1 - p, as PyTorch's
/// Dropout1d, Dropout2d and Dropout3d (Tompson et al., arXiv:1411.4280).
[[nodiscard]] Variable channel_dropout(const Variable& x, double p, bool training);
/// Drops whole samples of x [N, ..]: stochastic depth for the branch of a residual block (Huang et al.,
/// arXiv:1603.09382).
[[nodiscard]] Variable drop_path(const Variable& x, double p, bool training);
/// Dropout for SELU (Klambauer et al., arXiv:1706.02515). Dropped elements get the smallest value of SELU.
/// Then all elements are scaled and shifted, which keeps mean 0 and variance 1. With `channels` it drops
/// whole channels, as PyTorch's FeatureAlphaDropout. With p = 1 all elements are 0.
[[nodiscard]] Variable alpha_dropout(const Variable& x, double p, bool training, bool channels = false);
/// Sets squares of `block` x `block` elements of x [N, C, H, W] to 0, independently in each channel, where p
/// is the share of dropped elements. The remaining elements are scaled by the share of kept elements (Ghiasi
/// et al., arXiv:1810.12890; torchvision's drop_block2d). Throws ArgumentError for a block that is even or
/// larger than the image.
[[nodiscard]] Variable drop_block2d(const Variable& x, double p, std::int64_t block, bool training);

}  // namespace fq::ops
