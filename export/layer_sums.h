#pragma once

/// The grid of a quantized layer's integer sums, and its bias on it, as the layer computes them.

#include <optional>

#include "fakequant/layers/modules/module.h"

namespace fq {

/// A sum A = bias + sum q_x*q_w stands for fl(A) * scale.
struct LayerSums {
  Tensor scale;  ///< f32, fl(s_x * s_w): rank 0, or [output channels]
  Tensor bias;   ///< i32 [output channels]: `bias_codes`; undefined for a layer without a bias
};

/// Of a quantized linear or convolution layer that multiplies integer codes: up to 8 bits, one known range of
/// the input, weights per tensor or per output channel. Nothing for every other module. Throws ArgumentError
/// naming a quantizer that was not calibrated.
[[nodiscard]] std::optional<LayerSums> layer_sums(Module& layer);

}  // namespace fq
