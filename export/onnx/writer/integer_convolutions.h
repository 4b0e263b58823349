#pragma once

/// Convolutions of codes whose sums are read as floats.

#include "fakequant/export/onnx/writer/graph_builder.h"

namespace fq::detail {

/// ONNX Runtime multiplies the dequantized floats of a convolution unless one quantizer rounds it. Where
/// both sides are codes of bytes such a Conv becomes ConvInteger, the integer bias added to its sums, and one
/// multiplication by their scale: fl(fl(A) * s), the floats of evaluation here. After `split_sums`.
void write_integer_convolutions(GraphBuilder& graph);

}  // namespace fq::detail
