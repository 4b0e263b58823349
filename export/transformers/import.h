#pragma once

/// Transformers in: what `save_pretrained` of Hugging Face's transformers writes becomes a model of ours.
///
///     const ImportedModel imported = import_transformers("llama/", {.sample_shape = {128}});
///     std::shared_ptr<Graph> net = imported.build();  // ids [N, 128] to [N, vocabulary, 128]
///
/// docs/import.md says what of a config.json is known.

#include <string>
#include <vector>

#include "fakequant/export/onnx/import.h"
#include "fakequant/export/safetensors/weights.h"

namespace fq {

/// What is known by "architectures" of config.json: "GPT2LMHeadModel", "LlamaForCausalLM", ...
[[nodiscard]] std::vector<std::string> transformer_architectures();

/// Whether `path` is a folder with a config.json, or weights (*.safetensors, *.safetensors.index.json) that
/// one stands beside.
[[nodiscard]] bool is_transformer(const std::string& path);

/// The safetensors file, or the index, of such a folder; `path` itself where it is one. Throws FileError for
/// a folder without.
[[nodiscard]] std::string transformer_weights(const std::string& path);

/// The network that config.json describes, with the weights of model.safetensors, or of the files that
/// model.safetensors.index.json names. `path` is the folder, or one of these two.
///
/// `options.sample_shape` is [tokens]; empty for as many as there are positions, of rotary ones at most 2048.
/// Language models take ids [N, L] and give [N, vocabulary, L]. Their layers have the names that they have
/// there, so that paths of parameters are the file's, but for Attention's: `model.layers.0.mlp.up_proj`.
/// Encoders take ids, a mask and token types side by side ("input_part"), less what `options.fixed_inputs`
/// sets for all samples: `attention_mask` to 1, `token_type_ids` to a whole number. Of a BertModel
/// `options.output` is "last_hidden_state", which is the default, or "pooler_output".
///
/// F32, F16, BF16 and F64 become f32. A head that shares its table with the embedding does so here. `renames`
/// are of names in the file; those that get an empty name are left out.
///
/// Throws FileError: for an architecture that is not known, naming those that are; for what config.json asks
/// for and is not computed (rotary positions of a part of a head, sliding windows, ..), with its line; and one that names
/// all tensors that are missing, have other shapes or types, or no place. Files are checked before anything
/// of the sizes that config.json claims is allocated.
[[nodiscard]] ImportedModel import_transformers(const std::string& path, const ImportOptions& options = {},
                                                const std::vector<WeightRename>& renames = {});

}  // namespace fq
