#pragma once

/// Imports language models from llama.cpp's files, with their codes.
///
///     const QuantizedModel file = import_gguf(load_gguf("llama-q4_0.gguf"), {.sample_shape = {128}});
///     std::shared_ptr<Graph> net = file.build();  // ids [N, 128] to [N, vocabulary, 128]
///     const GgufTokenizer tokens = gguf_tokenizer(load_gguf("llama-q4_0.gguf"), "llama-q4_0.gguf");

#include <string>
#include <vector>

#include "fakequant/export/gguf/file.h"
#include "fakequant/export/quantized/quantized_model.h"

namespace fq {

/// Reads the network of a file with the architecture gpt2, llama or qwen2. F32 and F16 become floats. Layers
/// with Q4_0 and Q8_0 are quantized for the target ggml (presets q4_0 and q8_0), which recomputes the grid
/// from the weight in each step. Initially it has the codes and scales of the file, even if an importance
/// matrix chose them. A file without quantized tensors gives a float network.
///
/// Layers have the names of `import_transformers`. Rows of queries and keys of `llama` are in Hugging Face's
/// order. `options.sample_shape` is [tokens]. The default is the number of positions, for rotary positions at
/// most 2048. `file` names the file in messages.
///
/// Throws FileError for another architecture, for keys and tensors that are missing or have no place, for
/// other shapes, for scaling of rotary positions other than linear and yarn, and for values that are not
/// finite. `set_grids` throws for codes that the grid does not have (-128 of Q8_0) and names the tensor.
[[nodiscard]] QuantizedModel import_gguf(const GgufModel& model, const ImportOptions& options = {},
                                         const std::string& file = "file.gguf");

/// Tokenizer of a GGUF file.
struct GgufTokenizer {
  /// Bytes of each token, for a file without merges. Else empty.
  std::vector<std::string> tokens = {};
  /// Text of a tokenizer.json, for a file with merges. Else empty.
  std::string json = {};
};

/// Reads the keys tokenizer.ggml.*: the model "gpt2" (byte-level BPE) with the patterns "gpt-2", "llama-bpe"
/// and "qwen2". If the file contains a tokenizer.json (tokenizer.huggingface.json), returns that text.
/// Returns an empty tokenizer if the file has no tokenizer. `file` names the file in messages. Throws
/// FileError that names the supported values for other models ("llama", which is sentencepiece) and patterns,
/// and for keys of another type or count.
[[nodiscard]] GgufTokenizer gguf_tokenizer(const GgufModel& model, const std::string& file = "file.gguf");

}  // namespace fq
