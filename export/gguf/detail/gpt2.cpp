#include "fakequant/export/gguf/detail/gpt2.h"

#include "fakequant/export/gguf/detail/parts.h"
#include "fakequant/layers/modules/attention.h"

namespace fq::detail {
namespace {

/// The block that reads `x`, which becomes its output.
std::optional<Gpt2Block> gpt2_block_of(GgufMatching& parts, int& x, const GgufPart* norm) {
  const GgufPart* attention = parts.take("attention", {norm->output});
  const GgufPart* sum = attention ? parts.take("add", {attention->output, x}) : nullptr;
  const GgufPart* second = sum ? parts.take("layer_norm", {sum->output}) : nullptr;
  const GgufPart* up = second ? parts.take("linear", {second->output}) : nullptr;
  const GgufPart* gelu = up ? parts.take("gelu", {up->output}) : nullptr;
  const GgufPart* down = gelu ? parts.take("linear", {gelu->output}) : nullptr;
  const GgufPart* last = down ? parts.take("add", {down->output, sum->output}) : nullptr;
  if (last == nullptr) return std::nullopt;
  x = last->output;
  return Gpt2Block{norm->name, attention->name, second->name, up->name, down->name};
}

/// With the sizes; none where gpt2 has not what an attention of ours can be.
std::optional<Gpt2> sized(Gpt2 found, Module& model) {
  for (const auto& block : found.blocks) {
    const auto* attention = dynamic_cast<const Attention*>(&model.at(block.attention));
    if (attention == nullptr) return std::nullopt;
    const AttentionOptions& o = attention->options();
    const bool plain = o.causal && !o.rotary && o.bias && *o.out_bias && o.qk_norm == 0 &&
                       o.kv_heads == o.heads && o.heads * o.head_size == o.width;
    if (!plain || (found.heads != 0 && found.heads != o.heads)) return std::nullopt;
    found.heads = o.heads;
    found.width = o.width;
    found.feed = gguf_shape_of(model, block.up + ".weight").at(0);
    for (const auto& layer : {block.up, block.down})
      if (gguf_shape_of(model, layer + ".bias").empty()) return std::nullopt;
  }
  found.context = gguf_shape_of(model, found.positions + ".weight").at(0);
  found.vocabulary = gguf_shape_of(model, found.tokens + ".weight").at(0);
  if (!gguf_shape_of(model, found.head + ".bias").empty()) return std::nullopt;
  return found;
}

}  // namespace

std::optional<Gpt2> gpt2_of(Module& model, const Shape& input_shape) {
  GgufMatching parts(gguf_parts(model, input_shape));
  const GgufPart* tokens = parts.first("embedding");
  const GgufPart* positions = tokens ? parts.take("positions", {tokens->output}) : nullptr;
  if (positions == nullptr) return std::nullopt;
  Gpt2 out{tokens->name, positions->name, {}, {}, {}};
  int x = positions->output;
  for (;;) {
    const GgufPart* norm = parts.take("layer_norm", {x});
    if (norm == nullptr) return std::nullopt;
    if (const GgufPart* head = parts.take("linear", {norm->output})) {
      (void)parts.take("transpose", {head->output});
      out.norm = norm->name;
      out.head = head->name;
      break;
    }
    const auto block = gpt2_block_of(parts, x, norm);
    if (!block) return std::nullopt;
    out.blocks.push_back(*block);
  }
  return parts.done() && !out.blocks.empty() ? sized(std::move(out), model) : std::nullopt;
}

}  // namespace fq::detail
