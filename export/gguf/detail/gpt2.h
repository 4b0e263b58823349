#pragma once

/// llama.cpp's architecture gpt2, read from the graph of a network.

#include <optional>
#include <string>
#include <vector>

#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// Names of the modules of one block.
struct Gpt2Block {
  std::string attention_norm, attention, feed_norm, up, down;
};
/// Those of a network, and its sizes.
struct Gpt2 {
  std::string tokens, positions, norm, head;
  std::vector<Gpt2Block> blocks;
  std::int64_t width = 0, context = 0, heads = 0, feed = 0, vocabulary = 0;
};

/// Of a model whose values flow as gpt2's do: norms before, x + attention(norm(x)), x +
/// down(gelu(up(norm(x))); none for any other. `input_shape` is a batch's, of ids.
[[nodiscard]] std::optional<Gpt2> gpt2_of(Module& model, const Shape& input_shape);

}  // namespace fq::detail
