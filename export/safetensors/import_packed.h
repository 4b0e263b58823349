#pragma once

/// Imports quantized safetensors: codes and scales of ModelOpt's unified checkpoints and of
/// compressed-tensors.
///
///     ImportedModel floats = import_transformers("int8/");  // weights are code * scale
///     const FileQuantization how = packed_quantization("int8/model.safetensors", floats.state);

#include <string>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/export/quantized/quantized_model.h"

namespace fq {

/// Returns the quantization of a network from a safetensors file, or an index of several. `floats` has its
/// float weights as `parameters/<path>`. The result is empty for a float file.
///
/// Supported weights are I8 and E4M3 (one scale, or one per row), 4-bit codes in groups of columns
/// (ModelOpt's pairs of rows, the 32-bit words of compressed-tensors), NVFP4, and E4M3 and E2M1 in blocks
/// with E8M0 scales (MX). `input_scale` and `output_scale` give signed inputs and outputs. The configs in the
/// same folder (hf_quant_config.json, or quantization_config of config.json) may select dynamic E4M3 inputs,
/// and MXFP8 inputs in blocks.
///
/// Throws FileError that names file and tensor for unsupported data: NVFP4 inputs with these names, zero
/// points, activation ordering, factors of inputs, dynamic integer inputs, and codes without a layer.
/// `set_grids` throws for blocks whose scale does not follow from their values.
[[nodiscard]] FileQuantization packed_quantization(const std::string& path, const StateDict& floats);

}  // namespace fq
