#pragma once

/// llama.cpp's architectures llama and qwen2, read from the graph of a network.

#include <optional>
#include <string>
#include <vector>

#include "fakequant/export/gguf/detail/parameters.h"
#include "fakequant/layers/modules/rotary_scaling.h"

namespace fq::detail {

/// Names of the modules of one block.
struct LlamaBlock {
  std::string attention_norm, attention, feed_norm, gate, up, down;
};
/// Those of a network, and its sizes.
struct Llama {
  std::string tokens, norm, head;
  std::vector<LlamaBlock> blocks;
  std::int64_t width = 0, context = 0, heads = 0, kv_heads = 0, head_size = 0, feed = 0, vocabulary = 0;
  double base = 0, eps = 0;
  RotaryScaling scaling;
  /// Whether q, k and v have biases (qwen2); else none has (llama), and heads are turned in neighbours.
  bool biases = false;

  [[nodiscard]] const char* architecture() const { return biases ? "qwen2" : "llama"; }
};

/// Of a model whose values flow as theirs do: RMS norms before, x + attention(norm(x)) with rotary positions,
/// x + down(silu(gate(norm(x))) * up(norm(x))); none for any other. `input_shape` is a batch's, of ids.
[[nodiscard]] std::optional<Llama> llama_of(Module& model, const Shape& input_shape);

/// The rows of queries or keys as llama.cpp's `llama` has them: of each head row j of the first half, then
/// row j of the second, where positions turn the two together. Row i of the file is row `result[i]` of ours.
[[nodiscard]] std::vector<std::int64_t> interleaved_rows(std::int64_t heads, std::int64_t head_size);

/// The keys and the tensors of such a network. Throws ArgumentError for scaled rotary positions that
/// llama.cpp does not compute.
void add_llama(GgufModel& out, const Llama& net, const GgufParameters& from);

}  // namespace fq::detail
