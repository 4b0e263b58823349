#pragma once

/// Sums that several quantizers round.

#include "fakequant/export/onnx/writer/graph_builder.h"

namespace fq::detail {

/// ONNX Runtime computes a product, an addition or an average of codes in integers where one quantizer rounds
/// it, through a ReLU at most. One that is read otherwise too is written once more for each such quantizer:
/// twice in integers takes less time than once in floats, and gives the codes of evaluation here.
void split_sums(GraphBuilder& graph);

}  // namespace fq::detail
