#pragma once

/// Quantized weights in the format of the package compressed-tensors, which vLLM and transformers read.
///
///     save_compressed_tensors("out/model.safetensors", model);  // and out/config.json

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "fakequant/export/safetensors/file.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// Returns every parameter and buffer of the model. Quantized weights of linear layers are codes:
///
/// | preset | format | `<layer>.weight` | `.weight_scale` | `.input_scale` |
/// | --- | --- | --- | --- | --- |
/// | int8, target none | int-quantized | I8 [N, K] | F32 [N, 1] | F32 [1] |
/// | int8_weight_only | int-quantized | I8 [N, K] | F32 [N, 1] | - |
/// | int4_blockwise | pack-quantized | (below) | F32 [N, K / group] | - |
/// | fp8 | float-quantized | F8_E4M3 [N, K] | F32 [1] | F32 [1] |
/// | fp8_per_channel_per_token | float-quantized | F8_E4M3 [N, K] | F32 [N, 1] | - |
///
/// 4-bit codes are `.weight_packed` I32 [N, K / 8], eight codes + 8 from the lowest bits up, and
/// `.weight_shape` I64 [2]. A weight is code * weight_scale. Networks with Llama's names have the names of
/// the original file. Throws ArgumentError that names the module for formats outside the table, for layers
/// that are not linear and other quantizers (for additions: the target none has none), and as
/// `modelopt_tensors`. A model on a GPU moves to the host for this time, and its gradients are cleared.
[[nodiscard]] NamedTensors compressed_tensors(Module& model);

/// Returns `{"quantization_config": {"quant_method": "compressed-tensors", "format", "config_groups",
/// "ignore", ..}}`. There is one group per format. Its targets are the names of its layers. Throws as
/// `compressed_tensors`.
[[nodiscard]] nlohmann::json compressed_tensors_config(Module& model, const std::string& version = {});

/// Writes the tensors to `path` and the config to config.json in the same folder. Both files are renamed
/// together, the config first. Throws as `compressed_tensors` and `save_safetensors`, and then writes neither
/// file.
void save_compressed_tensors(const std::string& path, Module& model, const std::string& version = {});

}  // namespace fq
