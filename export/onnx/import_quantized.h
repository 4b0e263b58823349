#pragma once

/// Imports quantized ONNX files with pairs of QuantizeLinear and DequantizeLinear (QDQ) from this exporter,
/// ModelOpt, ONNX Runtime's static quantizer or PyTorch's exporters.
///
///     const OnnxModel file = load_onnx("int8.onnx");
///     if (is_quantized(file)) std::shared_ptr<Graph> net = import_quantized_onnx(file).build();

#include "fakequant/export/quantized/quantized_model.h"

namespace fq {

/// Whether a file has DequantizeLinear nodes.
[[nodiscard]] bool is_quantized(const OnnxModel& model);

/// Imports the network with `import_onnx`, without the QDQ nodes, and assigns the grids to the quantizers of
/// the layers that read them: inputs, weights (per tensor, channel and block) and, if the reading layer has
/// no quantizer, outputs of the layer before. Biases in steps of the sums become floats. A quantizer before
/// operators that only move values (max pooling, reshaping) may be on both sides of them. Within attention,
/// the grids of queries, keys, values and weights, with one scale each, go to the quantizers of that layer.
///
/// The target is `tensorrt` if all activation codes are signed with zero point 0 and no bias is an integer,
/// else `ort`. `ort` stores signed codes with an offset of 128, independent of the file.
///
/// Throws ArgumentError as `import_onnx`. Throws ArgumentError that names node and reason for unsupported
/// quantization: zero points of neither signed nor unsigned codes, quantized scales, operators on codes
/// (QLinearConv and similar), values on two grids, quantizers at positions where the network has none, and
/// batch norm after a quantized weight.
[[nodiscard]] QuantizedModel import_quantized_onnx(const OnnxModel& model, const ImportOptions& options = {});

}  // namespace fq
