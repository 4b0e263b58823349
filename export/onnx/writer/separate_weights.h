#pragma once

/// Weights that several products read.

#include "fakequant/export/onnx/writer/graph_builder.h"

namespace fq::detail {

/// Where a processor has no VNNI, ONNX Runtime makes other codes of an 8-bit weight and of its zero points
/// for each product (`session.x64quantprecision`), and does not load a graph in which two read one constant.
/// Each product after the first gets constants of its own.
void separate_weights(GraphBuilder& graph);

}  // namespace fq::detail
