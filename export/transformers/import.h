#pragma once

/// Imports networks that `save_pretrained` of Hugging Face's transformers wrote.
///
///     const ImportedModel imported = import_transformers("llama/", {.sample_shape = {128}});
///     std::shared_ptr<Graph> net = imported.build();  // ids [N, 128] to [N, vocabulary, 128]
///
/// docs/import.md lists the supported keys of config.json.

#include <string>
#include <vector>

#include "fakequant/export/onnx/import.h"
#include "fakequant/export/safetensors/weights.h"

namespace fq {

/// Returns the supported "architectures" of config.json: "GPT2LMHeadModel", "LlamaForCausalLM", ...
[[nodiscard]] std::vector<std::string> transformer_architectures();

/// Whether `path` is a folder with a config.json, or a weight file (*.safetensors, *.safetensors.index.json)
/// in a folder with one.
[[nodiscard]] bool is_transformer(const std::string& path);

/// Returns the safetensors file or the index in a folder. Returns `path` itself if it is a file. Throws
/// FileError for a folder without weights.
[[nodiscard]] std::string transformer_weights(const std::string& path);

/// Returns the network that config.json describes, with the weights of model.safetensors, or of the files
/// that model.safetensors.index.json names. `path` is the folder or one of these files.
///
/// `options.sample_shape` is [tokens]. The default is the number of positions, for rotary positions at most
/// 2048. Language models map ids [N, L] to [N, vocabulary, L]. Layers and parameters have the paths of the
/// file, `model.layers.0.mlp.up_proj`, except within Attention.
///
/// Encoders have the inputs ids, mask and token types, concatenated in a row ("input_part").
/// `options.fixed_inputs` removes inputs that are constant for all samples: `attention_mask` set to 1,
/// `token_type_ids` set to an integer. For a BertModel, `options.output` is "last_hidden_state" (default) or
/// "pooler_output".
///
/// F32, F16, BF16 and F64 become f32. A head that shares the embedding's table in the file does so here.
/// `renames` apply to names in the file. A rename to an empty name excludes the tensor.
///
/// Throws FileError for an unknown architecture, naming the known ones, and with the line for settings of
/// config.json that are not supported (rotary positions for a part of a head, sliding windows, ..). One
/// FileError names all tensors that are missing, have other shapes or types, or have no place. Files are
/// checked before any memory of the sizes in config.json is allocated.
[[nodiscard]] ImportedModel import_transformers(const std::string& path, const ImportOptions& options = {},
                                                const std::vector<WeightRename>& renames = {});

}  // namespace fq
