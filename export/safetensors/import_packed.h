#pragma once

/// Quantized safetensors in: the codes and scales of ModelOpt's unified checkpoints and of
/// compressed-tensors.
///
///     ImportedModel floats = import_transformers("int8/");  // weights are code * scale
///     const FileQuantization how = packed_quantization("int8/model.safetensors", floats.state);

#include <string>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/export/quantized/quantized_model.h"

namespace fq {

/// How a file of safetensors (or an index of several) quantizes a network whose `parameters/<path>` are its
/// weights as floats; empty for a file of floats. Taken are I8 and E4M3 (one scale, or one a row), and 4 bits
/// in groups of columns (ModelOpt's pairs of rows, the words of compressed-tensors), NVFP4, and
/// E4M3 and E2M1 in blocks with scales of E8M0 (MX); inputs and outputs by `input_scale` and `output_scale`,
/// signed. A config beside the file (hf_quant_config.json, or quantization_config of config.json) that has
/// ranges taken from each input is followed for E4M3, and one that says MXFP8 for inputs in blocks.
///
/// Throws FileError naming file and tensor for what our grids cannot hold (inputs in NVFP4 by these names,
/// zero points, activation ordering, factors of inputs, inputs of integers whose range is taken anew) and
/// codes of no layer. `set_grids` refuses blocks whose scale their own values would not make again.
[[nodiscard]] FileQuantization packed_quantization(const std::string& path, const StateDict& floats);

}  // namespace fq
