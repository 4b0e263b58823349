#pragma once

/// Folding batch normalisation into the layer before it.
///
///     const std::vector<std::string> folded = fold_batch_norm(model, {1, 3, 32, 32});
///
/// Do it once training in float is over, before `quantize`: a deployed network has no batch norm.

#include <string>
#include <vector>

#include "fakequant/layers/modules/module.h"

namespace fq {

/// Folds every batch norm whose input is the output of one linear or convolution layer and of nothing else,
/// as the graph of operators shows it: w' = w * g/sqrt(var+eps) per output channel, b' = (b - mean) *
/// g/sqrt(var+eps) + beta. The batch norm becomes an identity. A module that runs several times is left
/// alone. Returns the paths of the batch norms folded. `input_shape` is that of a batch. Evaluation gives the
/// same values up to float rounding; training statistics are fixed from here on.
///
/// In a quantized model the ranges of the weights move along: per output channel amax' = amax *
/// |g/sqrt(var+eps)|, which keeps the magnitude of every code but for ties; others become those of the new
/// weights. The codes of activations change a little, as the bias is rounded to the accumulator's grid from
/// here on.
///
/// Throws ArgumentError for a model with weights that hold codes (layers/quantizer/compress.h), and as
/// `trace`.
std::vector<std::string> fold_batch_norm(Module& model, const Shape& input_shape);

}  // namespace fq
