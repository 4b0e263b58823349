#pragma once

/// The input of a graph that is imported.

#include "fakequant/export/onnx/model.h"

namespace fq::detail {

/// The network's input: what is not an initializer, which old files list as inputs too. Throws ArgumentError
/// unless there is one, of floats or token ids.
[[nodiscard]] const OnnxValueInfo& input_of(const OnnxModel& model);
/// Of one sample: the file's sizes, and those `given` where it leaves them open. Throws ArgumentError when
/// they contradict each other, are missing or absurd.
[[nodiscard]] Shape sample_shape_of(const OnnxValueInfo& input, const Shape& given);

/// The name of the output that is asked for, or of the only one. Throws ArgumentError naming those that there
/// are.
[[nodiscard]] const std::string& output_of(const OnnxModel& model, const std::string& wanted);

}  // namespace fq::detail
