#pragma once

/// Weights as their quantizer would give them.

#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::ptq {

/// What quantizing gives for `weight` with ranges of its own, by the descriptor's calib_method; a sequence
/// part by part. The quantizer itself stays as it is.
[[nodiscard]] Tensor trial_weight(TensorQuantizer& quantizer, const Tensor& weight);

}  // namespace fq::ptq
