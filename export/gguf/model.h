#pragma once

/// A network as a GGUF file has it: the codes that were trained, copied and never made anew.
///
///     save_gguf("gpt.gguf", gguf_model(model, {1, 64}, {.name = "shakespeare"}));

#include <cstdint>
#include <string>
#include <vector>

#include "fakequant/export/gguf/file.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

struct GgufOptions {
  std::string name = "fakequant";  ///< general.name
  /// The tokens by their ids, for the tokenizer's keys: their bytes. None: no keys of a tokenizer.
  std::vector<std::string> vocabulary = {};
  /// Pairs of tokens that become one, as GPT-2's tokenizer writes them, "left right"; none where each token
  /// is a byte.
  std::vector<std::string> merges = {};
  /// Ids of tokens that are no text, as its end: llama.cpp shows them as nothing.
  std::vector<std::int32_t> control = {};
  /// llama.cpp's name of the pattern that cuts texts into words: "gpt-2", "llama-bpe", "qwen2".
  std::string pattern = "gpt-2";
  /// Matrices that are not quantized, but for tables of positions: F16 (rounded) in place of F32.
  bool f16 = false;
};

/// Weights on the grids of the target ggml become Q4_0 and Q8_0 blocks, everything else F32 or F16.
///
/// A network of the built-in `gpt`'s graph (learned positions, heads of keys as many as of queries, every
/// bias but the last) is of architecture `gpt2`, with llama.cpp's names and keys; q, k and v become one
/// tensor, row below row. One of RMS norms, rotary positions and SwiGLU is `qwen2` where q, k and v have
/// biases, and `llama` where none has: there rows of queries and keys are in the order in which llama.cpp
/// turns them, in neighbours. A table that is the head's too is written once. Any other is of architecture
/// `fakequant`, with its own names. `input_shape` is a batch's. Throws ArgumentError for a layer that was
/// quantized for another engine, naming the preset to use, for a model that holds compressed weights, and for
/// a vocabulary of another size. A model on a GPU is on the host meanwhile, and its gradients are forgotten.
[[nodiscard]] GgufModel gguf_model(Module& model, const Shape& input_shape, const GgufOptions& options = {});

}  // namespace fq
