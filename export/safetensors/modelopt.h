#pragma once

/// Quantized weights as NVIDIA ModelOpt's unified checkpoints name and pack them, and ranges that ModelOpt
/// calibrated.
///
///     const ImportedRanges ranges = import_ranges(model, "amax.safetensors");  // in place of calibration
///     save_modelopt("model.safetensors", model);  // and hf_quant_config.json beside it

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fakequant/export/safetensors/file.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// Every parameter and buffer of the model, weights that are quantized as their codes:
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
/// A weight is code * weight_scale (of NVFP4 * (weight_scale * weight_scale_2)): the bits of the quantizer's
/// own values. Ranges of weights that are not per output channel along axis 0 have `weight_scale` in a shape
/// that broadcasts. Further: `.pre_quant_scale`; `.input_scale`, `.input_scale_1` of additions and other
/// modules without a weight; and what other readers ignore: `.bias_code` I32 of integer sums, `.output_scale`
/// F32 of an output quantizer. Networks of Llama's names (export/transformers/import.h) have those of their
/// own file, `model.layers.0.self_attn.o_proj.weight`.
///
/// Throws ArgumentError naming the module and what formats there are: for combinations that the table has
/// not, unsigned activations (the names cannot say so: calibrate for TensorRT), blocks that do not divide the
/// last axis, and for quantizers that were not calibrated. A model on a GPU is on the host meanwhile, and its
/// gradients are forgotten.
[[nodiscard]] NamedTensors modelopt_tensors(Module& model);

/// `hf_quant_config.json`: `{"producer": {"name": "fakequant", "version"}, "quantization": {"quant_algo",
/// "kv_cache_quant_algo", "group_size", "exclude_modules"}, "weights_crc32c"}`; where layers differ
/// quant_algo is MIXED_PRECISION, with `quantized_layers` by path. `weights_crc32c` is `safetensors_checksum`
/// of the tensors, in eight hexadecimal digits: the config of other weights has another. Throws as above.
[[nodiscard]] nlohmann::json modelopt_config(Module& model, const std::string& version = {});

/// Writes the tensors to `path` and the config beside it; both are put in place back to back, the config
/// first. Throws as above, and as `save_safetensors`; nothing is written then.
void save_modelopt(const std::string& path, Module& model, const std::string& version = {});

/// What a file had for a model. An empty `missing` says that the model can quantize.
struct ImportedRanges {
  std::vector<std::string> set;      ///< quantizers whose range it gave
  std::vector<std::string> missing;  ///< quantizers that still have no range and need one
  std::vector<std::string> unused;   ///< keys of ranges and factors that no quantizer takes
};

/// Sets amax and pre_quant_scale of a quantized model's quantizers to those of a state dict of ModelOpt or
/// pytorch-quantization as safetensors: `<module>.input_quantizer._amax`, `._pre_quant_scale`,
/// `<module>._input_quantizer._amax`, .. of F32, F16, BF16 or F64, in any shape with the right number of
/// elements, row-major. Quantizers are found by their path. One that several modules share takes the value
/// under its own name, else the largest of its aliases'; factors must be the same under all of its names. A
/// quantizer that is off, takes its ranges from each input or was given amax by its config takes no range.
/// Other tensors of the file are not read.
///
/// Throws FileError naming file, key and quantizer: a number of elements that is not that of the quantizer's
/// ranges, values that are negative (of factors: not positive) or not finite, factors of a quantizer that is
/// off, two spellings of one name, another type; and as SafetensorsFile. Then nothing was changed.
[[nodiscard]] ImportedRanges import_ranges(Module& model, const std::string& path);

}  // namespace fq
