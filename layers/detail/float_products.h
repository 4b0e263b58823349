#pragma once

/// What of a quantized model is computed in floats all the same.

#include <string>
#include <vector>

#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// A warning for each layer whose input and weight are both dequantized: it multiplies floats, not codes.
/// `graph` is the trace of the quantized model.
[[nodiscard]] std::vector<std::string> float_products(Module& model, const TraceGraph& graph);
/// Logs the operators that ONNX Runtime computes in floats, if the model has layers of integer codes.
void warn_float_operators(Module& model, const Shape& input_shape, Target target);

}  // namespace fq::detail
