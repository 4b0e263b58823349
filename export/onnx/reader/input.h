#pragma once

/// Inputs and outputs of an imported graph.

#include <map>
#include <string>
#include <vector>

#include "fakequant/export/onnx/import.h"
#include "fakequant/export/onnx/model.h"

namespace fq::detail {

/// Inputs of a network.
struct GraphInputs {
  struct Own {
    const OnnxValueInfo* info;
    Shape sample;  ///< of one sample; empty for an input [N] with one number per row
  };
  std::vector<Own> own;  ///< the data, or several inputs that are parts of its rows, in order
  Shape sample;          ///< shape of one data sample
  struct Fixed {
    Tensor value;    ///< has the type of the file and a batch of 1
    Shape of_batch;  ///< shape with a symbolic batch
  };
  std::map<std::string, Fixed> fixed;
};

/// Returns the inputs that `nodes` or `output` read. Excludes initializers, which old files list as inputs
/// too. Throws one ArgumentError that lists all inputs with their types if no input remains, or if there are
/// several and the batch is not the first axis of each. Also throws for invalid fixed values, for shapes that
/// the file leaves open, and for data inputs that are neither floats nor integers.
[[nodiscard]] GraphInputs resolve_inputs(const OnnxModel& model, const std::vector<OnnxNode>& nodes,
                                         const std::string& output, const ImportOptions& options);

/// Returns the type name for the layer "input_part": "f32", "bool". Empty if the elements are not numbers.
[[nodiscard]] std::string part_type(const OnnxValueInfo& input);

/// Returns the name of the output `wanted`, or of the only output. Throws ArgumentError that lists the
/// outputs.
[[nodiscard]] const std::string& output_name(const OnnxModel& model, const std::string& wanted);

}  // namespace fq::detail
