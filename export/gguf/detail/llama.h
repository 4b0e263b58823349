#pragma once

/// The architectures llama and qwen2 of llama.cpp, found in the graph of a network.

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
/// Names of the modules of a network, and its sizes.
struct Llama {
  std::string tokens, norm, head;
  std::vector<LlamaBlock> blocks;
  std::int64_t width = 0, context = 0, heads = 0, kv_heads = 0, head_size = 0, feed = 0, vocabulary = 0;
  double base = 0, eps = 0;
  RotaryScaling scaling;
  /// Whether q, k and v have biases (qwen2), and whether queries and keys have norms (qwen3). With neither
  /// (llama), rotary positions rotate adjacent rows.
  bool biases = false, norms = false;

  [[nodiscard]] bool interleaved() const { return !biases && !norms; }
  [[nodiscard]] const char* architecture() const { return norms ? "qwen3" : biases ? "qwen2" : "llama"; }
};

/// Returns the structure of a network with the data flow of these architectures: RMS norms first, x +
/// attention(norm(x)) with rotary positions, x + down(silu(gate(norm(x))) * up(norm(x))). Returns no value
/// for other networks. `input_shape` is a batch of ids.
[[nodiscard]] std::optional<Llama> match_llama(Module& model, const Shape& input_shape);

/// Returns the row order of queries or keys in llama.cpp's `llama`. In each head, row j of the first half is
/// followed by row j of the second half, because rotary positions rotate this pair. Row i of the file is row
/// `result[i]` of the model.
[[nodiscard]] std::vector<std::int64_t> interleaved_rows(std::int64_t heads, std::int64_t head_size);

/// Adds the keys and the tensors of the network. Throws ArgumentError for scaled rotary positions that
/// llama.cpp does not compute.
void add_llama(GgufModel& out, const Llama& net, const GgufParameters& from);

}  // namespace fq::detail
