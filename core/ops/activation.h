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

}  // namespace fq::ops
