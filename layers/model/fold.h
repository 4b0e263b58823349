#pragma once

/// Folds batch normalisation into the layer before it.
///
///     const std::vector<std::string> folded = fold_batch_norm(model, {1, 3, 32, 32});
///
/// Fold after float training and before `quantize`: a deployed network has no batch norm.

#include <string>
#include <vector>

#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// Paths of a batch norm and of the layer that it folds into.
struct FoldablePair {
  std::string norm, layer;
};

/// Returns every batch norm whose input is the output of one linear or convolution layer without other
/// readers, according to the graph of operators. Excludes modules that run several times, and grouped
/// transposed convolutions.
[[nodiscard]] std::vector<FoldablePair> foldable_batch_norms(Module& model, const TraceGraph& graph);

/// Folds all such batch norms: w' = w * g/sqrt(var+eps) per output channel, b' = (b - mean) * g/sqrt(var+eps)
/// + beta. Each batch norm becomes an identity. Returns the paths of the folded batch norms. `input_shape`
/// includes the batch. The training statistics are fixed from here on.
///
/// Evaluation in floats gives the same values up to float rounding. In a quantized model the ranges of the
/// weights change with the weights. Integer weights with one range, or a range per output channel, keep their
/// codes: amax' = amax * |g/sqrt(var+eps)| per output channel. A weight that would round to another code, at
/// a tie, becomes the nearest float that keeps its code. If a channel is so small that the bias does not fit
/// the grid of the sums, its codes become 0, as in evaluation with the batch norm. With the quantizers that
/// `quantize` placed, evaluation then has the same bits before and after (BatchNorm::folds_into_layer).
///
/// Other weights are rounded again: weights with power-of-two scales and weights in blocks. Minifloats change
/// at ties, and floats that use their sums change by float rounding.
/// Throws ArgumentError for a model whose weights hold codes (layers/quantizer/compress.h), and as `trace`. A
/// model on a GPU moves to the host for this time, and its gradients are cleared.
std::vector<std::string> fold_batch_norm(Module& model, const Shape& input_shape);

}  // namespace fq
