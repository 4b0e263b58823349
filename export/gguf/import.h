#pragma once

/// GGUF in: language models of llama.cpp's files, with the codes that they hold.
///
///     const QuantizedModel file = import_gguf(load_gguf("llama-q4_0.gguf"), {.sample_shape = {128}});
///     std::shared_ptr<Graph> net = file.build();  // ids [N, 128] to [N, vocabulary, 128]
///     const GgufTokenizer tokens = gguf_tokenizer(load_gguf("llama-q4_0.gguf"), "llama-q4_0.gguf");

#include <string>
#include <vector>

#include "fakequant/export/gguf/file.h"
#include "fakequant/export/quantized/quantized_model.h"

namespace fq {

/// The network of a file of the architectures gpt2, llama and qwen2. F32 and F16 become floats. Layers of
/// Q4_0 and Q8_0 are quantized for the target ggml (presets q4_0 and q8_0), whose grid is made of the weight
/// in each step; at first it gives the codes and scales of the file, also where an importance matrix chose
/// them. A file without such tensors gives a float network.
///
/// Layers have the names of `import_transformers`, where rows of queries and keys of `llama` are in Hugging
/// Face's order. `options.sample_shape` is [tokens], by default as many as there are positions, of rotary
/// ones at most 2048. `file` names the file in messages.
///
/// Throws FileError: for another architecture, keys and tensors that are missing, of other shapes or left
/// over, rotary positions scaled otherwise than linear and yarn, values that are not finite. Codes that our
/// grid does not have (-128 of Q8_0) are refused by `set_grids`, naming the tensor.
[[nodiscard]] QuantizedModel import_gguf(const GgufModel& model, const ImportOptions& options = {},
                                         const std::string& file = "file.gguf");

/// Tokenizer of a GGUF file.
struct GgufTokenizer {
  /// Bytes of each id, of a file without merges. Else empty.
  std::vector<std::string> tokens = {};
  /// Text of a tokenizer.json, of a file with merges. Else empty.
  std::string json = {};
};

/// Reads the keys tokenizer.ggml.*: the model "gpt2" (byte-level BPE) with the words of "gpt-2", "llama-bpe"
/// and "qwen2"; a file that keeps a tokenizer.json (tokenizer.huggingface.json) has that. Returns an empty
/// tokenizer if the file has none. `file` names it in messages. Throws FileError for other models ("llama",
/// sentencepiece's) and words, naming the known ones, and for keys of another type or count.
[[nodiscard]] GgufTokenizer gguf_tokenizer(const GgufModel& model, const std::string& file = "file.gguf");

}  // namespace fq
