#pragma once

/// A network as a list of operators with its constants, codes as they were trained: what
/// fakequant.engines.executorch_writer makes an ExecuTorch program of.
///
///     save_state("network.h5", detail::executorch_network(model, {1, 64}), "predictions");

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// Runs the model once, in evaluation mode, on zeros of that shape, batch included: f32, or i64 where the
/// first operator looks up rows of a table.
///
/// The attribute "graph" is `{"input": value, "output": value, "shape": input_shape, "tokens": whether they
/// are ids, "nodes": [{"path", "op", "attributes", "inputs", "output"}]}`; values are numbers, -1 for an
/// input that was not given. A node of a quantizer has "scale", "zero_point", "low" and "high" besides, its
/// codes being clamp(rint(x / scale), low, high) + zero_point. Constants are the tensors "values/N"; those
/// that are codes "codes/N" (i8, or u8 of unsigned ones) and "scales/N", in the shape of the blocks, with
/// "bits/N" as attribute. Throws ArgumentError for a model that holds compressed weights, and for ranges of
/// an activation other than one a tensor.
[[nodiscard]] StateDict executorch_network(Module& model, const Shape& input_shape);

}  // namespace fq::detail
