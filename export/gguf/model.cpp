#include "fakequant/export/gguf/model.h"

#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "fakequant/export/gguf/detail/llama.h"
#include "fakequant/export/gguf/detail/parts.h"
#include "fakequant/export/gguf/detail/vocabulary.h"
#include "fakequant/layers/modules/attention.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/layers/quantizer/compress.h"

namespace fq::detail {
namespace {

/// Names of the modules of one block.
struct Gpt2Block {
  std::string attention_norm, attention, feed_norm, up, down;
};
/// Names of the modules of a network, and its sizes.
struct Gpt2 {
  std::string tokens, positions, norm, head;
  std::vector<Gpt2Block> blocks;
  std::int64_t width = 0, context = 0, heads = 0, feed = 0, vocabulary = 0;
  double eps = 0;  // of all norms: the file has one number
};

/// Matches the block that reads `x`, and sets `x` to its output.
std::optional<Gpt2Block> match_gpt2_block(GgufMatching& parts, int& x, const GgufPart* norm) {
  const GgufPart* attention = parts.take("attention", {norm->output});
  const GgufPart* sum = attention ? parts.take("add", {attention->output, x}) : nullptr;
  const GgufPart* second = sum ? parts.take("layer_norm", {sum->output}) : nullptr;
  const GgufPart* up = second ? parts.take("linear", {second->output}) : nullptr;
  const GgufPart* gelu = up ? parts.take("gelu", {up->output}) : nullptr;
  const GgufPart* down = gelu ? parts.take("linear", {gelu->output}) : nullptr;
  const GgufPart* last = down ? parts.take("add", {down->output, sum->output}) : nullptr;
  if (last == nullptr || second->eps != norm->eps) return std::nullopt;
  x = last->output;
  return Gpt2Block{norm->name, attention->name, second->name, up->name, down->name};
}

/// Adds the sizes. Returns no value if gpt2 cannot represent an attention layer.
std::optional<Gpt2> sized(Gpt2 found, Module& model) {
  for (const auto& block : found.blocks) {
    const auto* attention = dynamic_cast<const Attention*>(&model.at(block.attention));
    if (attention == nullptr) return std::nullopt;
    const AttentionOptions& o = attention->options();
    // gpt2 in llama.cpp has one tensor for q, k and v, biases in all layers of a block and equal numbers of
    // heads.
    const bool plain = o.causal && !o.rotary && o.bias && *o.out_bias && o.qk_norm == 0 &&
                       o.kv_heads == o.heads && o.heads * o.head_size == o.width;
    if (!plain || (found.heads != 0 && found.heads != o.heads)) return std::nullopt;
    found.heads = o.heads;
    found.width = o.width;
    found.feed = gguf_shape(model, block.up + ".weight").at(0);
    for (const auto& layer : {block.up, block.down})
      if (gguf_shape(model, layer + ".bias").empty()) return std::nullopt;
  }
  found.context = gguf_shape(model, found.positions + ".weight").at(0);
  found.vocabulary = gguf_shape(model, found.tokens + ".weight").at(0);
  if (!gguf_shape(model, found.head + ".bias").empty()) return std::nullopt;
  return found;
}

/// Returns the structure of a network with the data flow of gpt2: norms first, x + attention(norm(x)), x +
/// down(gelu(up(norm(x)))). Returns no value for other networks. `input_shape` is a batch of ids.
std::optional<Gpt2> match_gpt2(Module& model, const Shape& input_shape) {
  GgufMatching parts(gguf_parts(model, input_shape));
  const GgufPart* tokens = parts.first("embedding");
  const GgufPart* positions = tokens ? parts.take("positions", {tokens->output}) : nullptr;
  if (positions == nullptr) return std::nullopt;
  Gpt2 out{tokens->name, positions->name, {}, {}, {}};
  int x = positions->output;
  for (;;) {
    const GgufPart* norm = parts.take("layer_norm", {x});
    if (norm == nullptr || (out.eps != 0 && norm->eps != out.eps)) return std::nullopt;
    out.eps = norm->eps;
    // Each norm outside of a block is followed by the next block, or by the head after the last block.
    if (const GgufPart* head = parts.take("linear", {norm->output})) {
      // The transpose to [N, V, L] exists only for the loss. llama.cpp reads the logits of a token.
      (void)parts.take("transpose", {head->output});
      out.norm = norm->name;
      out.head = head->name;
      break;
    }
    const auto block = match_gpt2_block(parts, x, norm);
    if (!block) return std::nullopt;
    out.blocks.push_back(*block);
  }
  return parts.done() && !out.blocks.empty() ? sized(std::move(out), model) : std::nullopt;
}

}  // namespace
}  // namespace fq::detail

namespace fq {
namespace {

void add_gpt2_keys(GgufModel& out, const detail::Gpt2& net) {
  const auto number = [&](const char* key, std::int64_t value) {
    out.metadata.emplace_back(std::string("gpt2.") + key, static_cast<std::uint32_t>(value));
  };
  number("context_length", net.context);
  number("embedding_length", net.width);
  number("feed_forward_length", net.feed);
  number("block_count", static_cast<std::int64_t>(net.blocks.size()));
  number("attention.head_count", net.heads);
  number("vocab_size", net.vocabulary);
  out.metadata.emplace_back("gpt2.attention.layer_norm_epsilon", static_cast<float>(net.eps));
}

void add_gpt2_tensors(GgufModel& out, const detail::Gpt2& net, const detail::GgufParameters& from) {
  const auto both = [&](const std::string& ours, const std::string& name) {
    for (const char* part : {".weight", ".bias"})
      out.tensors.push_back(from.tensor(ours + part, name + part));
  };
  out.tensors.push_back(from.tensor(net.tokens + ".weight", "token_embd.weight"));
  out.tensors.push_back(from.tensor(net.positions + ".weight", "position_embd.weight", true));
  both(net.norm, "output_norm");
  // Without "output.weight", llama.cpp multiplies by the table of the embedding.
  if (!from.same(net.head + ".weight", net.tokens + ".weight"))
    out.tensors.push_back(from.tensor(net.head + ".weight", "output.weight"));
  for (std::size_t i = 0; i < net.blocks.size(); ++i) {
    const detail::Gpt2Block& block = net.blocks[i];
    const std::string name = fmt::format("blk.{}.", i);
    both(block.attention_norm, name + "attn_norm");
    for (const char* part : {".weight", ".bias"}) {
      std::vector<std::string> ours;
      for (const char* projection : {".q_proj", ".k_proj", ".v_proj"})
        ours.push_back(block.attention + projection + part);
      out.tensors.push_back(from.stacked(ours, name + "attn_qkv" + part));
    }
    both(block.attention + ".out_proj", name + "attn_output");
    both(block.feed_norm, name + "ffn_norm");
    both(block.up, name + "ffn_up");
    both(block.down, name + "ffn_down");
  }
}

}  // namespace

GgufModel gguf_model(Module& model, const Shape& input_shape, const GgufOptions& options) {
  check_not_compressed(model, "export_gguf");
  const detail::OnHost host(model);
  const detail::GgufParameters from(model, options.f16);
  // The data flow decides, not the names of modules. A network of another kind is a container of tensors that
  // llama.cpp cannot run.
  const auto gpt2 = detail::match_gpt2(model, input_shape);
  const auto llama = gpt2 ? std::nullopt : detail::match_llama(model, input_shape);
  GgufModel out;
  out.metadata.emplace_back("general.architecture", std::string(gpt2    ? "gpt2"
                                                                : llama ? llama->architecture()
                                                                        : "fakequant"));
  out.metadata.emplace_back("general.quantized_by", std::string("fakequant"));
  out.metadata.emplace_back("general.name", options.name);
  out.metadata.emplace_back("general.file_type", from.file_type());
  out.metadata.emplace_back("general.quantization_version", std::uint32_t{2});
  if (gpt2) {
    add_gpt2_keys(out, *gpt2);
    add_gpt2_tensors(out, *gpt2, from);
  } else if (llama) {
    detail::add_llama(out, *llama, from);
  } else {
    out.tensors = from.all();
  }
  if (!gpt2 && !llama) return out;
  // llama.cpp requires the key.
  if (options.vocabulary.empty())
    out.metadata.emplace_back("tokenizer.ggml.model", std::string("none"));
  else
    detail::add_vocabulary(out, options, gpt2 ? gpt2->vocabulary : llama->vocabulary);
  return out;
}

}  // namespace fq
