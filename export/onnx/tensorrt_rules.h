#pragma once

/// TensorRT's rules for quantized ONNX files, as its documentation and its parser state them; TensorRT itself
/// is not needed.
///
///     for (const auto& [node, rule] : tensorrt_rule_breaks(load_onnx("net.onnx")))
///       std::cerr << node << ": " << rule << '\n';

#include <string>
#include <vector>

#include "fakequant/export/onnx/model.h"

namespace fq {

/// A rule that a node does not keep. `node` is the node's name, its first output where it has none, or the
/// name of a tensor.
struct RuleBreak {
  std::string node, rule;
};

/// All breaks, in the order of the nodes; empty for a file that TensorRT 10 and 11 take. Of "Working with
/// Quantized Types", the reference of the Quantize and Dequantize layers and onnx-tensorrt's list of
/// operators:
///
///  * opset 9 to 25;
///  * codes are signed: INT8, FP8 E4M3, FP4 E2M1, and INT4 for constants only. An int32 bias behind
///    DequantizeLinear is refused: it is a float constant;
///  * zero points are 0 or left out;
///  * scales are constants (or a DequantizeLinear of constants, FP4's two levels), positive and finite;
///  * activations have one scale; constants have one, or one an output channel of the layer that reads them
///    (axis 0 of Conv, 1 of ConvTranspose, that of the outputs of MatMul and Gemm), or, of other types than
///    INT8, one a block along one of the last two axes;
///  * an Add whose sum is quantized reads two DequantizeLinear: with one, the other branch stays float;
///  * graph outputs are not codes;
///  * tensors have at most 2^31 - 1 elements.
[[nodiscard]] std::vector<RuleBreak> tensorrt_rule_breaks(const OnnxModel& model);

}  // namespace fq
