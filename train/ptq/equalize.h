#pragma once

/// Cross-layer equalisation: ranges of weights evened out between layers.

#include <cstdint>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/ptq/report.h"

namespace fq::ptq {

struct EqualizeOptions {
  int iterations = 20;      ///< at most
  double tolerance = 1e-3;  ///< ends when no factor is further from 1
};

/// Divides output channel c of a layer, with its bias, by s_c = sqrt(r1_c / r2_c) and multiplies the weights
/// that read it by s_c: both then have the range sqrt(r1_c * r2_c) (Nagel et al., "Data-Free Quantization
/// Through Weight Equalization and Bias Correction", 2019). r1_c is the largest magnitude of the weights that
/// make the channel, r2_c of those that read it. Pairs are linear layers and convolutions, grouped ones too,
/// with only ReLU, leaky ReLU, pooling or flattening between them, as the graph shows; repeated until nothing
/// moves. Fold batch norm first. Channels that are 0 on either side stay.
///
/// `model` may be quantized, but not yet calibrated. In float it computes the same up to rounding. Needs no
/// data. Reported: the largest weight that makes what the layer reads times the largest that reads it, which
/// bounds the product of their steps, before and after. Throws ArgumentError for options out of range and for
/// a calibrated model.
Report equalize(Module& model, const Shape& input_shape, const EqualizeOptions& options = {});

}  // namespace fq::ptq
