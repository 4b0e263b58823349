#pragma once

/// The range of a quantizer in the shapes of ModelOpt's exporters.

#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq {

/// amax as the reference's exporters want it: 0 becomes the bound of the format, at least the smallest normal
/// number of its type; per tensor [1], one axis a list, blocks along the last axis [.., blocks]. Undefined
/// without amax. Blocks need the shape of the input (amax stays as it is where that is empty), else
/// ArgumentError.
[[nodiscard]] Tensor export_amax(const TensorQuantizer& quantizer, const Shape& input = {});

}  // namespace fq
