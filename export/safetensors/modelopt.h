#pragma once

/// Quantized weights in the format of NVIDIA ModelOpt's unified checkpoints, and import of ranges that
/// ModelOpt calibrated.
///
///     const ImportedRanges ranges = import_ranges(model, "amax.safetensors");  // replaces calibration
///     save_modelopt("model.safetensors", model);  // and hf_quant_config.json

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fakequant/export/safetensors/file.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// Returns every parameter and buffer of the model. Quantized weights are codes:
///
/// | quant_algo | `<module>.weight` | `.weight_scale` | `.input_scale` |
/// | --- | --- | --- | --- |
/// | W8A8_SQ_PER_CHANNEL | I8 | F32 [N] | F32 [] |
/// | W8A16 | I8 | F32 [N] | - |
/// | FP8 | F8_E4M3 | F32 [] | F32 [] |
/// | FP8_PER_CHANNEL_PER_TOKEN | F8_E4M3 | F32 [N] | - |
/// | NVFP4 | U8 [N, K/2], low nibble first | F8_E4M3 [N, K/16], and F32 [] `.weight_scale_2` | F32 [] |
/// | W4A16_AWQ | U8 [N/2, K], row 2i in the low nibble | F32 [N, K/group] | - |
/// | MXFP8 | F8_E4M3 [N, K] | U8 [N, K/32], exponent + 127 | - |
///
/// A weight is code * weight_scale (for NVFP4 code * (weight_scale * weight_scale_2)). These are the exact
/// values of the quantizer. If the ranges of a weight are not per output channel along axis 0, the shape of
/// `weight_scale` broadcasts against the weight.
///
/// There may also be `.pre_quant_scale`, and `.input_scale`, `.input_scale_1` of additions and other modules
/// without a weight. Other readers ignore `.bias_code` I32 of integer sums and `.output_scale` F32 of an
/// output quantizer. Networks with Llama's names (export/transformers/import.h) have the names of the
/// original file, `model.layers.0.self_attn.o_proj.weight`.
///
/// Throws ArgumentError that names the module and the formats for combinations outside the table, unsigned
/// activations (the format cannot express them: calibrate for TensorRT), blocks that do not divide the last
/// axis, and uncalibrated quantizers. A model on a GPU moves to the host for this time, and its gradients are
/// cleared.
[[nodiscard]] NamedTensors modelopt_tensors(Module& model);

/// Returns `hf_quant_config.json`: `{"producer": {"name": "fakequant", "version"}, "quantization":
/// {"quant_algo", "kv_cache_quant_algo", "group_size", "exclude_modules"}, "weights_crc32c"}`. If layers
/// differ, quant_algo is MIXED_PRECISION with `quantized_layers` by path. `weights_crc32c` is
/// `safetensors_checksum` of the tensors as eight hexadecimal digits. It ties the config to these weights.
/// Throws as `modelopt_tensors`.
[[nodiscard]] nlohmann::json modelopt_config(Module& model, const std::string& version = {});

/// Writes the tensors to `path` and the config to the same folder. Both files are renamed together, the
/// config first. Throws as `modelopt_tensors` and `save_safetensors`, and then writes neither file.
void save_modelopt(const std::string& path, Module& model, const std::string& version = {});

/// Result of `import_ranges`. With an empty `missing`, the model can quantize.
struct ImportedRanges {
  std::vector<std::string> set;      ///< quantizers that got a range
  std::vector<std::string> missing;  ///< quantizers that need a range and have none
  std::vector<std::string> unused;   ///< keys of ranges and factors that match no quantizer
};

/// Sets amax and pre_quant_scale of the quantizers of a quantized model from a state dict of ModelOpt or
/// pytorch-quantization in safetensors: `<module>.input_quantizer._amax`, `._pre_quant_scale`,
/// `<module>._input_quantizer._amax`, .. as F32, F16, BF16 or F64. They may have any shape with the right
/// number of elements, row-major. Quantizers are found by path.
///
/// A quantizer that several modules share takes the value under its own name, else the largest value of its
/// aliases. Factors must be the same under all names. A quantizer gets no range if it is off, has dynamic
/// ranges or has amax from its config. Other tensors of the file are not read.
///
/// Throws FileError that names file, key and quantizer for a wrong number of elements, values that are
/// negative (for factors: not positive) or not finite, factors of a quantizer that is off, two spellings of
/// one name, and another type. Also throws as SafetensorsFile. The model is unchanged after an error.
[[nodiscard]] ImportedRanges import_ranges(Module& model, const std::string& path);

}  // namespace fq
