#pragma once

/// The inputs and the output of a graph that is imported.

#include <map>
#include <string>
#include <vector>

#include "fakequant/export/onnx/import.h"
#include "fakequant/export/onnx/model.h"

namespace fq::detail {

/// What a network reads.
struct GraphInputs {
  struct Own {
    const OnnxValueInfo* info;
    Shape sample;  ///< of one sample; empty for an input [N], whose data are rows of one number
  };
  std::vector<Own> own;  ///< the data, or several that are parts of its rows, in their order
  Shape sample;          ///< of one sample of the data
  struct Fixed {
    Tensor value;    ///< of the type that the file states, with a batch of 1
    Shape of_batch;  ///< shape with a symbolic batch
  };
  std::map<std::string, Fixed> fixed;
};

/// The inputs that `nodes` or the output `output` read and that are no initializers, which old files list as
/// inputs too. Throws ArgumentError, naming all of them with their types, where none is left or several
/// are whose first axis is not the batch, and for values that do not fit, shapes that the file leaves open,
/// and own inputs of neither floats nor whole numbers.
[[nodiscard]] GraphInputs inputs_of(const OnnxModel& model, const std::vector<OnnxNode>& nodes,
                                    const std::string& output, const ImportOptions& options);

/// The word for its elements' type in the layer "input_part": "f32", "bool"; empty where they are no numbers.
[[nodiscard]] std::string part_type(const OnnxValueInfo& input);

/// The name of the output that is asked for, or of the only one. Throws ArgumentError naming those that there
/// are.
[[nodiscard]] const std::string& output_of(const OnnxModel& model, const std::string& wanted);

}  // namespace fq::detail
