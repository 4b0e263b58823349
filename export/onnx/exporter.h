#pragma once

/// Exports quantized and float models as ONNX graphs with QuantizeLinear and DequantizeLinear nodes.
///
///     OnnxExportOptions options;
///     options.target = model_target(model);
///     save_onnx("net.onnx", export_onnx(model, {3, 32, 32}, options));  // a sample without the batch
///
/// A model that was quantized for `ort` gives the same codes in ONNX Runtime as in evaluation here, except
/// for the operators that layers/model/float_operators.h lists. `fakequant verify` compares both.

#include "fakequant/export/onnx/model.h"
#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// Options of an ONNX export.
struct OnnxExportOptions {
  /// Engine that reads the file. `ort`: signed codes are stored as uint8 with zero point 128, biases as int32
  /// codes. `tensorrt`: only int8 and zero points of 0; biases are floats on the grid of the sums, fl(bq *
  /// sxw). Use `ort` for a model that was quantized for `ort_dynamic`: it has DynamicQuantizeLinear and
  /// MatMulInteger, and requires a batch of one if each sample has its own range.
  Target target = Target::ort;
  /// Opset of the file, 13 or more. 0: the oldest opset that supports the graph.
  int opset = 0;
  /// Writes values for which ONNX Runtime has no kernel in another type with equal numbers.
  bool emulate = false;
};

/// Exports the computation of a model in evaluation mode for inputs [N, sample..]. Reads it from the
/// operators that the model runs on `meta`, not from its modules.
///
/// The input is named "input", the output "output" and the batch "N". The input is f32, or i64 if the network
/// only uses it to look up rows of tables (token ids). If a network reads its input in parts
/// (ops::input_part), each part is a graph input with its own name, shape and type, in the order of the row.
///
/// A node has the path of the module that calls it. Codes of an activation have the path of their quantizer,
/// as `predict --codes` names them: stored = code + zero point. Operators that move values (pooling,
/// reshaping, concatenation) have the same grid before and after.
///
/// Activations of integers with up to 8 bits have 8-bit codes, and activations with 9 to 16 bits have 16-bit
/// codes. A Clip keeps the codes within their bounds. Only 4-bit activations have a type of their own, except
/// for tensorrt.
///
/// Throws ArgumentError that names the obstacle: quantizers without amax, dynamic ranges, more than one kept
/// axis, a format that the target does not support, a model quantized for another target, or an operator
/// without an ONNX form. A model on a GPU moves to the host for this time, and its gradients are cleared.
[[nodiscard]] OnnxModel export_onnx(Module& model, const Shape& sample,
                                    const OnnxExportOptions& options = {});

/// Throws ArgumentError if `export_onnx` cannot write the grid of an activation or an operator of the model.
/// Reads the operators on `meta` and computes no constants, so a check is much cheaper than an export.
void check_onnx_export(Module& model, const Shape& sample, const OnnxExportOptions& options = {});

}  // namespace fq
