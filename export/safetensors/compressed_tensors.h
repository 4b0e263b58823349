#pragma once

/// Quantized weights as the package compressed-tensors names and packs them, which vLLM and transformers
/// read.
///
///     save_compressed_tensors("out/model.safetensors", model);  // and out/config.json

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "fakequant/export/safetensors/file.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// Every parameter and buffer of the model, weights of linear layers that are quantized as their codes:
///
/// | preset | format | `<layer>.weight` | `.weight_scale` | `.input_scale` |
/// | --- | --- | --- | --- | --- |
/// | int8, target none | int-quantized | I8 [N, K] | F32 [N, 1] | F32 [1] |
/// | int8_weight_only | int-quantized | I8 [N, K] | F32 [N, 1] | - |
/// | int4_blockwise | pack-quantized | (below) | F32 [N, K / group] | - |
/// | fp8 | float-quantized | F8_E4M3 [N, K] | F32 [1] | F32 [1] |
/// | fp8_per_channel_per_token | float-quantized | F8_E4M3 [N, K] | F32 [N, 1] | - |
///
/// Codes of 4 bits are `.weight_packed` I32 [N, K / 8], eight codes + 8 from the lowest bits on, and
/// `.weight_shape` I64 [2]. A weight is code * weight_scale. Networks of Llama's names have those of their
/// own file. Throws ArgumentError naming the module: for what the table has not, for layers that are not
/// linear and quantizers elsewhere (additions: target none has none), and as `modelopt_tensors`.
/// A model on a GPU is on the host meanwhile, and its gradients are forgotten.
[[nodiscard]] NamedTensors compressed_tensors(Module& model);

/// `{"quantization_config": {"quant_method": "compressed-tensors", "format", "config_groups", "ignore",
/// ..}}`, a group for each format, whose targets are the names of its layers. Throws as above.
[[nodiscard]] nlohmann::json compressed_tensors_config(Module& model, const std::string& version = {});

/// Writes the tensors to `path` and the config as config.json beside it, back to back, the config first.
/// Throws as above, and as `save_safetensors`; nothing is written then.
void save_compressed_tensors(const std::string& path, Module& model, const std::string& version = {});

}  // namespace fq
