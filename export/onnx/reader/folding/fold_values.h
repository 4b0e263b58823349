#pragma once

/// Constant folding of operators that compute over an axis or several: reductions, products, sums so far.

#include "fakequant/export/onnx/reader/folding/fold_moves.h"

namespace fq::detail {

/// Computes the node's reduction.
[[nodiscard]] Tensor fold_reduce(const Fold& f);
[[nodiscard]] Tensor fold_matmul(const Fold& f);
[[nodiscard]] Tensor fold_softmax(const Fold& f);
[[nodiscard]] Tensor fold_cumsum(const Fold& f);
/// Adds borders of one number, of the edge's numbers, mirrored or circular ones.
[[nodiscard]] Tensor fold_pad(const Fold& f);

}  // namespace fq::detail
