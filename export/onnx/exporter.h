#pragma once

/// Quantized and float models as ONNX graphs of QuantizeLinear and DequantizeLinear nodes.
///
///     OnnxExportOptions options;
///     options.target = target_of(model);
///     save_onnx("net.onnx", export_onnx(model, {3, 32, 32}, options));  // a sample without the batch
///
/// A model that was quantized for `ort` gives in ONNX Runtime the codes that evaluation gives here, but for
/// the operators that layers/model/float_operators.h lists; `fakequant verify` compares them.

#include "fakequant/export/onnx/model.h"
#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// For which engine the graph is written, and how.
struct OnnxExportOptions {
  /// `ort`: signed codes are stored as uint8 with zero point 128, biases as int32 codes. `tensorrt`: int8 and
  /// zero points 0 only, biases as floats on the grid of their sums, fl(bq * sxw). A model that was quantized
  /// for `ort_dynamic` is written for `ort`: DynamicQuantizeLinear and MatMulInteger, for batches of one
  /// where each sample has its range.
  Target target = Target::ort;
  /// The operator set of the file, 13 or more; 0 for the oldest that has all that the graph needs.
  int opset = 0;
  /// Values that ONNX Runtime has no kernel for are written in a type that it has, equal as numbers.
  bool emulate = false;
};

/// The graph of what the model computes in evaluation for inputs [N, sample..], read from its operators on
/// `meta`, not from its modules.
///
/// Its input is "input", its output "output", its batch "N". The input is f32, or i64 where the network only
/// looks up rows of tables by it (token ids). A network whose input is read by parts (ops::input_part) has an
/// input for each of them instead, in the order of the row, of its own name, shape and type. A node is named
/// by the path of the module that calls it; the codes of an activation by their quantizer's path, as `predict
/// --codes` names them: stored = code + zero point. Values of one grid that are moved (pooling, reshaping,
/// concatenation) are on that grid before and after. Activations of integers of up to 8 bits have codes of 8
/// bits, those of 9 to 16 codes of 16, which a Clip keeps within their bounds; only those of 4 bits have
/// types of their own, and not for tensorrt.
///
/// Throws ArgumentError naming what stands in the way: quantizers without amax, ranges that each input has
/// for itself, more than one kept axis, a format that the target has not, a model quantized for another
/// target, an operator without ONNX form. A model on a GPU is on the host meanwhile, and its gradients are
/// forgotten.
[[nodiscard]] OnnxModel export_onnx(Module& model, const Shape& sample,
                                    const OnnxExportOptions& options = {});

/// Throws ArgumentError if `export_onnx` cannot write the grid of an activation or an operator of the model.
/// Reads the operators on `meta` and computes no constants, so a check is much cheaper than an export.
void check_onnx_export(Module& model, const Shape& sample, const OnnxExportOptions& options = {});

}  // namespace fq
