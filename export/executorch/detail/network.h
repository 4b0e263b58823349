#pragma once

/// A network as a list of operators with its constants, which are the trained codes.
/// fakequant.engines.executorch_writer turns it into an ExecuTorch program.
///
///     save_state("network.h5", detail::executorch_network(model, {1, 64}), "predictions");

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// Runs the model once in evaluation mode on zeros of `input_shape`, which includes the batch. The zeros are
/// f32, or i64 if the first operator looks up rows of a table.
///
/// The attribute "graph" is `{"input": value, "output": value, "shape": input_shape, "tokens": whether the
/// input is ids, "nodes": [{"path", "op", "attributes", "inputs", "output"}]}`. Values are numbers, -1 for a
/// missing input. The node of a quantizer also has "scale", "zero_point", "low" and "high". Its codes are
/// clamp(rint(x / scale), low, high) + zero_point.
///
/// Constants are the tensors "values/N". Constant codes are "codes/N" (i8, or u8 for unsigned codes) with
/// "scales/N" in the shape of the blocks, and the attribute "bits/N". Throws ArgumentError for a model with
/// compressed weights, and for an activation that does not have one range per tensor.
[[nodiscard]] StateDict executorch_network(Module& model, const Shape& input_shape);

}  // namespace fq::detail
