#pragma once

/// Changes of a finished graph for ONNX Runtime, in this order.

#include "fakequant/export/onnx/writer/graph_builder.h"

namespace fq::detail {

/// ONNX Runtime computes a product, an addition or an average of codes in integers where one quantizer rounds
/// it, through a ReLU at most. One that is read otherwise too is written once more for each such quantizer:
/// twice in integers takes less time than once in floats, and gives the codes of evaluation here.
void split_sums(GraphBuilder& graph);

/// ONNX Runtime multiplies the dequantized floats of a convolution unless one quantizer rounds it. Where
/// both sides are codes of bytes such a Conv becomes ConvInteger, the integer bias added to its sums, and one
/// multiplication by their scale: fl(fl(A) * s), the floats of evaluation here. After `split_sums`.
void write_integer_convolutions(GraphBuilder& graph);

/// Where a processor has no VNNI, ONNX Runtime makes other codes of an 8-bit weight and of its zero points
/// for each product (`session.x64quantprecision`), and does not load a graph in which two read one constant.
/// Each product after the first gets constants of its own.
void separate_weights(GraphBuilder& graph);

}  // namespace fq::detail
