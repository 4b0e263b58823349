#pragma once

/// The tokenizer of a GGUF file, for a network that is imported of it.
///
///     const GgufTokenizer tokens = gguf_tokenizer(load_gguf("llama-q4_0.gguf"), "llama-q4_0.gguf");

#include <string>
#include <vector>

#include "fakequant/export/gguf/file.h"

namespace fq {

/// What ids stand for.
struct GgufTokenizer {
  /// Their bytes, where each is a token of its own: a file without merges. Else none.
  std::vector<std::string> tokens = {};
  /// The text of a tokenizer.json where pieces are joined; else empty.
  std::string json = {};
};

/// By the keys tokenizer.ggml.*: the model "gpt2" (byte-level BPE) with the words of "gpt-2", "llama-bpe" and
/// "qwen2"; a file that keeps a tokenizer.json (tokenizer.huggingface.json) has that. Nothing where the file
/// has no tokenizer. `file` names it in messages. Throws FileError for other models ("llama",
/// sentencepiece's) and words, naming the known ones, and for keys of another type or count.
[[nodiscard]] GgufTokenizer gguf_tokenizer(const GgufModel& model, const std::string& file = "file.gguf");

}  // namespace fq
