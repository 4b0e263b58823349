#pragma once

/// Converts a network to a GGUF file. The trained codes are copied, never recomputed.
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
  /// Bytes of each token, for the tokenizer's keys. Empty: no tokenizer, llama.cpp reads ids.
  std::vector<std::string> vocabulary = {};
  /// Pairs of tokens to merge, in the notation of GPT-2's tokenizer, "left right". Empty if each token is a
  /// byte.
  std::vector<std::string> merges = {};
  /// Ids of tokens that are not text, like the end of a text. llama.cpp prints nothing for them.
  std::vector<std::int32_t> control = {};
  /// llama.cpp's name of the pattern that splits texts into words: "gpt-2", "llama-bpe", "qwen2".
  std::string pattern = "gpt-2";
  /// Writes unquantized matrices as F16 (rounded) instead of F32, except tables of positions.
  bool f16 = false;
};

/// Converts a network: weights on grids of the target ggml become Q4_0 and Q8_0 blocks, other values F32 or
/// F16.
///
/// The graph of the network determines the architecture. A network like the built-in `gpt` (learned
/// positions, equal numbers of query and key heads, biases in all layers except the last) is `gpt2`, with
/// llama.cpp's names and keys. Its q, k and v become one tensor, stacked along the rows.
///
/// A network with RMS norms, rotary positions and SwiGLU is `llama`. With biases of q, k and v it is `qwen2`,
/// with norms of queries and keys `qwen3`. In `llama`, rows of queries and keys are in llama.cpp's order,
/// where rotary positions rotate adjacent rows. A table that embedding and head share is written once. Any
/// other network has the architecture `fakequant` with its own names.
///
/// `input_shape` includes the batch. Throws ArgumentError for a layer that was quantized for another engine
/// (naming the preset to use), for a model with compressed weights, and for a vocabulary of another size. A
/// model on a GPU moves to the host for this time, and its gradients are cleared.
[[nodiscard]] GgufModel gguf_model(Module& model, const Shape& input_shape, const GgufOptions& options = {});

}  // namespace fq
