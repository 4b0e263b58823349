#pragma once

/// Finds the layers and operators of a quantized model that are computed in floats.

#include <string>
#include <vector>

#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// Returns a warning for each layer whose input and weight are both dequantized: the layer multiplies floats,
/// not codes. `graph` is the trace of the quantized model.
[[nodiscard]] std::vector<std::string> float_products(Module& model, const TraceGraph& graph);
/// Logs the operators that ONNX Runtime computes in floats, if the model has layers of integer codes.
void warn_float_operators(Module& model, const Shape& input_shape, Target target);

}  // namespace fq::detail
