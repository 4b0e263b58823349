#pragma once

/// Dropout of more than single elements, and of those that keep their mean and variance. What is dropped is,
/// as in `dropout` (activation.h), a function of this thread's random stream and the place: seed, step, the
/// count of dropouts in the step, and the logical row-major index of what is dropped. Without `training`, or
/// with p = 0, each is x itself and no operator. f32 or f64. Throw ArgumentError unless 0 <= p <= 1.

#include "fakequant/core/variable.h"

namespace fq::ops {

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
