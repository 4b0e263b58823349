#pragma once

/// Quantized ONNX in: pairs of QuantizeLinear and DequantizeLinear (QDQ), as we, ModelOpt, ONNX Runtime's
/// static quantizer and PyTorch's exporters write them.
///
///     const OnnxModel file = load_onnx("int8.onnx");
///     if (is_quantized(file)) std::shared_ptr<Graph> net = import_quantized_onnx(file).build();

#include "fakequant/export/quantized/quantized_model.h"

namespace fq {

/// Whether a file has codes: nodes DequantizeLinear.
[[nodiscard]] bool is_quantized(const OnnxModel& model);

/// The network of a file as `import_onnx` reads it without these nodes, and its grids at the quantizers of
/// the layers that read them: inputs, weights (per tensor, channel and block) and, where a layer that reads
/// has no quantizer, outputs of the layer before. Biases in steps of the sums become floats. A quantizer that
/// moving operators stand behind (pooling of maxima, reshaping) may be on both sides of them. Within
/// attention the grids of queries, keys, values and weights, of one scale each, go to the quantizers of that
/// layer.
///
/// The target is `tensorrt` where all codes of activations are signed with zero point 0 and no bias is an
/// integer, else `ort`: there signed codes are stored with an offset of 128, whatever the file did.
///
/// Throws ArgumentError as `import_onnx`, and naming node and reason for what our grids cannot hold: other
/// zero points than those of signed and unsigned codes, scales that are quantized, operators on codes
/// (QLinearConv and the like), values on two grids, quantizers where networks of ours have none, batch norm
/// behind a quantized weight.
[[nodiscard]] QuantizedModel import_quantized_onnx(const OnnxModel& model, const ImportOptions& options = {});

}  // namespace fq
