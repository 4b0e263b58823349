#pragma once

/// Folding batch normalisation into the layer before it.
///
///     const std::vector<std::string> folded = fold_batch_norm(model, {1, 3, 32, 32});
///
/// Do it once training in float is over, before `quantize`: a deployed network has no batch norm.

#include <string>
#include <vector>

#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// A batch norm and the layer that takes it in, by their paths.
struct FoldablePair {
  std::string norm, layer;
};

/// Every batch norm whose input is the output of one linear or convolution layer and of nothing else, as the
/// graph of operators shows it. A module that runs several times is left alone, and so are grouped transposed
/// convolutions.
[[nodiscard]] std::vector<FoldablePair> foldable_batch_norms(Module& model, const TraceGraph& graph);

/// Folds every such batch norm: w' = w * g/sqrt(var+eps) per output channel, b' = (b - mean) *
/// g/sqrt(var+eps) + beta. The batch norm becomes an identity. Returns the paths of the batch norms folded.
/// `input_shape` is that of a batch. Training statistics are fixed from here on.
///
/// Evaluation of floats gives the same values up to float rounding. In a quantized model the ranges of the
/// weights move along. Integers with a range per output channel, or one for the weight, keep their codes: per
/// output channel amax' = amax * |g/sqrt(var+eps)|, and a weight that would round to another code, at a tie,
/// becomes the nearest float that does not. Channels so small that the bias would not fit the grid of their
/// sums have codes of 0, as their batch norm has it in evaluation. Where `quantize` placed the quantizers
/// evaluation then has the same bits before and after (BatchNorm::in_layer). Other weights are rounded anew:
/// scales of powers of two, blocks; minifloats change at ties, and floats behind their sums by float
/// rounding.
///
/// Throws ArgumentError for a model with weights that hold codes (layers/quantizer/compress.h), and as
/// `trace`. A model on a GPU is on the host meanwhile, and its gradients are forgotten.
std::vector<std::string> fold_batch_norm(Module& model, const Shape& input_shape);

}  // namespace fq
