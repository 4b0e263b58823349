#pragma once

/// Activations: elementwise functions of one input.
///
///     const Variable y = ops::gelu(x);                    // the exact one, by erf
///     const Variable z = ops::dropout(y, 0.1, true);      // in training
///
/// All take f32 or f64 of any shape; the output has the input's shape, dtype and layout. Codes and sums are
/// read as floats unless said otherwise. NaN stays NaN. All throw ArgumentError for an undefined input or
/// another dtype. layers/modules/activation.h makes modules of them.

#include "fakequant/core/variable.h"

namespace fq::ops {

/// max(x, 0), with gradient 0 at 0. On sums not yet rounded it only sets their `relu` flag: whoever rounds
/// them applies it and masks the gradient, so that it costs nothing. On unsigned codes it is the identity.
[[nodiscard]] Variable relu(const Variable& x);
/// min(max(x, 0), 6); gradient 0 at both ends.
[[nodiscard]] Variable relu6(const Variable& x);
/// min(max(x, low), high), torch's clamp and hardtanh; the gradient is 0 at both ends. Throws ArgumentError
/// unless low <= high.
[[nodiscard]] Variable clip(const Variable& x, double low, double high);
/// x where x > 0, else slope * x. Throws ArgumentError for a negative slope.
[[nodiscard]] Variable leaky_relu(const Variable& x, double slope = 0.01);
/// x * Phi(x), where Phi is the normal distribution by erf (Hendrycks and Gimpel, arXiv:1606.08415); with
/// `approximate_tanh` x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))).
[[nodiscard]] Variable gelu(const Variable& x, bool approximate_tanh = false);
/// x * sigmoid(x), also known as swish.
[[nodiscard]] Variable silu(const Variable& x);
/// 1 / (1 + exp(-x)).
[[nodiscard]] Variable sigmoid(const Variable& x);
/// The hyperbolic tangent.
[[nodiscard]] Variable tanh(const Variable& x);
/// min(max(x / 6 + 1/2, 0), 1); gradient 0 at both ends.
[[nodiscard]] Variable hard_sigmoid(const Variable& x);
/// x * hard_sigmoid(x) (Howard et al., arXiv:1905.02244); gradient 0 at -3, 1 at 3.
[[nodiscard]] Variable hard_swish(const Variable& x);
/// x where x > 0, else alpha * (exp(x) - 1) (Clevert et al., arXiv:1511.07289).
[[nodiscard]] Variable elu(const Variable& x, double alpha = 1.0);
/// x where x > 0, else alpha * (exp(x / alpha) - 1) (Barron, arXiv:1704.07483). Throws ArgumentError for an
/// alpha of 0.
[[nodiscard]] Variable celu(const Variable& x, double alpha = 1.0);
/// 1.0507 * elu(x, 1.67326), the constants in full precision (Klambauer et al., arXiv:1706.02515).
[[nodiscard]] Variable selu(const Variable& x);
/// log(1 + exp(beta * x)) / beta, and x itself where beta * x > threshold, as torch has it. Throws
/// ArgumentError unless beta > 0.
[[nodiscard]] Variable softplus(const Variable& x, double beta = 1.0, double threshold = 20.0);
/// x * tanh(softplus(x)) (Misra, arXiv:1908.08681).
[[nodiscard]] Variable mish(const Variable& x);
/// log(sigmoid(x)), computed without overflow.
[[nodiscard]] Variable log_sigmoid(const Variable& x);
/// x / (1 + |x|).
[[nodiscard]] Variable softsign(const Variable& x);
/// x where x > 0, else slope * x (He et al., arXiv:1502.01852). `slope`, which takes a gradient, has one
/// element, or one for each channel (axis 1), or broadcasts to x by NumPy's rule.
[[nodiscard]] Variable prelu(const Variable& x, const Variable& slope);
/// The first half of x along `axis` times the sigmoid of the second half (Dauphin et al., arXiv:1612.08083):
/// the result has half of the elements. Throws ArgumentError for an odd size.
[[nodiscard]] Variable glu(const Variable& x, int axis = -1);

/// With `training` each element is 0 with probability p, else x / (1 - p) (Srivastava et al. 2014), so that
/// the mean stays.
///
/// Which ones is a function of this thread's random stream (core/random.h): seed, step, the count of dropouts
/// in the step, and the element's logical row-major index; not of layout, device or threads. f32 or f64; in
/// x's layout. Without `training`, or with p = 0, it is x itself and no operator. Throws ArgumentError unless
/// 0 <= p <= 1.
[[nodiscard]] Variable dropout(const Variable& x, double p, bool training);

/// Dropout of channels, samples and blocks, and dropout that keeps mean and variance. As in `dropout`, the
/// choice depends on this thread's random stream alone: seed, step, the count of dropouts in the step and the
/// logical row-major index of the channel, sample or block. Without `training`, or with p = 0, each function
/// returns x itself and records no operator. f32 or f64. All throw ArgumentError unless 0 <= p <= 1.

/// Whole channels of x [N, C, ..] are 0 with probability p, the others x / (1 - p): PyTorch's Dropout1d,
/// Dropout2d and Dropout3d (Tompson et al., arXiv:1411.4280).
[[nodiscard]] Variable channel_dropout(const Variable& x, double p, bool training);
/// Whole samples of x [N, ..]: stochastic depth, of the branch of a residual block (Huang et al.,
/// arXiv:1603.09382).
[[nodiscard]] Variable drop_path(const Variable& x, double p, bool training);
/// For SELU (Klambauer et al., arXiv:1706.02515): what is dropped is the least value of SELU, and all is
/// scaled and shifted so that mean 0 and variance 1 stay. Of elements, or, as PyTorch's FeatureAlphaDropout,
/// of whole channels. With p = 1 all is 0.
[[nodiscard]] Variable alpha_dropout(const Variable& x, double p, bool training, bool channels = false);
/// Squares of `block` elements a side of x [N, C, H, W], each channel its own, are 0; p is the share that is
/// dropped. The rest is scaled by what is left (Ghiasi et al., arXiv:1810.12890; torchvision's
/// drop_block2d). Throws ArgumentError for a block that is even or larger than the image.
[[nodiscard]] Variable drop_block2d(const Variable& x, double p, std::int64_t block, bool training);

}  // namespace fq::ops
