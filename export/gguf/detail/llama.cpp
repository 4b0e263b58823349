#include "fakequant/export/gguf/detail/llama.h"

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/export/gguf/detail/parts.h"
#include "fakequant/layers/modules/attention.h"

namespace fq::detail {
namespace {

/// Matches the block that reads `x`, and sets `x` to its output.
std::optional<LlamaBlock> match_llama_block(GgufMatching& parts, int& x, const GgufPart* norm) {
  const GgufPart* attention = parts.take("attention", {norm->output});
  const GgufPart* sum = attention ? parts.take("add", {attention->output, x}) : nullptr;
  const GgufPart* second = sum ? parts.take("rms_norm", {sum->output}) : nullptr;
  if (second == nullptr || second->eps != norm->eps) return std::nullopt;
  // Layers come in the order of execution: the gate with its SiLU, then `up`.
  const GgufPart* gate = parts.take("linear", {second->output});
  const GgufPart* silu = gate ? parts.take("silu", {gate->output}) : nullptr;
  const GgufPart* up = silu ? parts.take("linear", {second->output}) : nullptr;
  const GgufPart* product = up ? parts.take("multiply", {silu->output, up->output}) : nullptr;
  const GgufPart* down = product ? parts.take("linear", {product->output}) : nullptr;
  const GgufPart* last = down ? parts.take("add", {down->output, sum->output}) : nullptr;
  if (last == nullptr) return std::nullopt;
  x = last->output;
  return LlamaBlock{norm->name, attention->name, second->name, gate->name, up->name, down->name};
}

/// Adds the sizes. Returns no value if an attention or a bias differs from these architectures.
std::optional<Llama> sized(Llama found, Module& model) {
  const AttentionOptions* first = nullptr;
  for (const auto& block : found.blocks) {
    const auto* attention = dynamic_cast<const Attention*>(&model.at(block.attention));
    if (attention == nullptr) return std::nullopt;
    const AttentionOptions& o = attention->options();
    if (!o.causal || !o.rotary || *o.out_bias) return std::nullopt;
    // qwen3 has one eps for all norms, and no biases.
    if (o.qk_norm != 0 && (o.bias || o.qk_norm != found.eps)) return std::nullopt;
    // A key of the file applies to all blocks, so they must be equal.
    if (first == nullptr) first = &o;
    if (o.heads != first->heads || o.kv_heads != first->kv_heads || o.head_size != first->head_size ||
        o.bias != first->bias || o.qk_norm != first->qk_norm || o.rotary_base != first->rotary_base ||
        o.rotary_scaling != first->rotary_scaling)
      return std::nullopt;
    for (const auto& layer : {block.gate, block.up, block.down})
      if (!gguf_shape(model, layer + ".bias").empty()) return std::nullopt;
  }
  found.width = first->width;
  found.heads = first->heads;
  found.kv_heads = first->kv_heads;
  found.head_size = first->head_size;
  found.base = first->rotary_base;
  found.scaling = first->rotary_scaling;
  found.biases = first->bias;
  found.norms = first->qk_norm != 0;
  found.feed = gguf_shape(model, found.blocks[0].up + ".weight").at(0);
  found.vocabulary = gguf_shape(model, found.tokens + ".weight").at(0);
  if (!gguf_shape(model, found.head + ".bias").empty()) return std::nullopt;
  return found;
}

/// Writes the scaling of rotary positions as keys. For llama3 it is a tensor of divisors of the angles.
void add_scaling(GgufModel& out, const Llama& net) {
  using Kind = RotaryScaling::Kind;
  const RotaryScaling& s = net.scaling;
  if (s.kind == Kind::none) return;
  const std::string before = std::string(net.architecture()) + ".rope.scaling.";
  FQ_CHECK(s.kind != Kind::dynamic && (s.kind != Kind::llama3 || net.interleaved()) &&
               (s.kind != Kind::yarn || s.whole_pairs),
           "export_gguf",
           "rotary positions are scaled by '{}'{}, which llama.cpp does not compute for {}: export to ONNX",
           name(s.kind), s.kind == Kind::yarn ? " without whole pairs" : "", net.architecture());
  if (s.kind == Kind::llama3) {
    // llama.cpp divides the angle of each pair by its factor.
    const auto plain = rotary_frequencies({}, net.base, net.head_size, 1),
               own = rotary_frequencies(s, net.base, net.head_size, 1);
    Tensor factors = Tensor::empty({net.head_size / 2});
    for (std::size_t i = 0; i < own.size(); ++i)
      factors.mutable_data<float>()[i] = static_cast<float>(plain[i] / own[i]);
    out.tensors.push_back({"rope_freqs.weight", factors.shape(), GgufType::f32, factors});
    return;
  }
  const auto number = [&](const char* key, double value) {
    out.metadata.emplace_back(before + key, static_cast<float>(value));
  };
  out.metadata.emplace_back(before + "type", std::string(name(s.kind)));
  number("factor", s.factor);
  if (s.kind == Kind::linear) return;
  out.metadata.emplace_back(before + "original_context_length", static_cast<std::uint32_t>(s.context));
  number("yarn_beta_fast", s.fast);
  number("yarn_beta_slow", s.slow);
  // llama.cpp multiplies its own magnitude, 0.1 ln(factor) + 1, by attn_factor.
  RotaryScaling usual = s;
  usual.magnitude = 0;
  number("attn_factor", rotary_magnitude(s) / rotary_magnitude(usual));
}

void add_keys(GgufModel& out, const Llama& net) {
  const std::string before = std::string(net.architecture()) + ".";
  const auto number = [&](const char* key, std::int64_t value) {
    out.metadata.emplace_back(before + key, static_cast<std::uint32_t>(value));
  };
  number("context_length", net.context);
  number("embedding_length", net.width);
  number("feed_forward_length", net.feed);
  number("block_count", static_cast<std::int64_t>(net.blocks.size()));
  number("attention.head_count", net.heads);
  number("attention.head_count_kv", net.kv_heads);
  number("attention.key_length", net.head_size);
  number("attention.value_length", net.head_size);
  number("rope.dimension_count", net.head_size);
  number("vocab_size", net.vocabulary);
  out.metadata.emplace_back(before + "rope.freq_base", static_cast<float>(net.base));
  out.metadata.emplace_back(before + "attention.layer_norm_rms_epsilon", static_cast<float>(net.eps));
}

void add_block(GgufModel& out, const Llama& net, const GgufParameters& from, std::size_t i) {
  const LlamaBlock& block = net.blocks[i];
  const std::string name = fmt::format("blk.{}.", i);
  const auto weight = [&](const std::string& ours, const char* theirs) {
    out.tensors.push_back(from.tensor(ours + ".weight", name + theirs + ".weight"));
  };
  const auto projection = [&](const char* ours, const char* theirs, std::int64_t heads, bool turned) {
    const std::string path = block.attention + ours;
    if (turned && net.interleaved())
      out.tensors.push_back(
          from.ordered(path + ".weight", name + theirs + ".weight", interleaved_rows(heads, net.head_size)));
    else
      weight(path, theirs);
    if (net.biases) out.tensors.push_back(from.tensor(path + ".bias", name + theirs + ".bias"));
  };
  weight(block.attention_norm, "attn_norm");
  projection(".q_proj", "attn_q", net.heads, true);
  projection(".k_proj", "attn_k", net.kv_heads, true);
  projection(".v_proj", "attn_v", net.kv_heads, false);
  if (net.norms) {
    weight(block.attention + ".q_norm", "attn_q_norm");
    weight(block.attention + ".k_norm", "attn_k_norm");
  }
  weight(block.attention + ".out_proj", "attn_output");
  weight(block.feed_norm, "ffn_norm");
  weight(block.gate, "ffn_gate");
  weight(block.up, "ffn_up");
  weight(block.down, "ffn_down");
}

}  // namespace

std::optional<Llama> match_llama(Module& model, const Shape& input_shape) {
  GgufMatching parts(gguf_parts(model, input_shape));
  const GgufPart* tokens = parts.first("embedding");
  if (tokens == nullptr) return std::nullopt;
  Llama out;
  out.tokens = tokens->name;
  // Rotary positions have no table whose rows limit the context, so it is the length of the given input.
  out.context = input_shape.back();
  int x = tokens->output;
  for (;;) {
    const GgufPart* norm = parts.take("rms_norm", {x});
    if (norm == nullptr || (out.eps != 0 && norm->eps != out.eps)) return std::nullopt;
    out.eps = norm->eps;
    if (const GgufPart* head = parts.take("linear", {norm->output})) {
      (void)parts.take("transpose", {head->output});
      out.norm = norm->name;
      out.head = head->name;
      break;
    }
    // A norm that the head does not read begins a block.
    const auto block = match_llama_block(parts, x, norm);
    if (!block) return std::nullopt;
    out.blocks.push_back(*block);
  }
  return parts.done() && !out.blocks.empty() ? sized(std::move(out), model) : std::nullopt;
}

std::vector<std::int64_t> interleaved_rows(std::int64_t heads, std::int64_t head_size) {
  std::vector<std::int64_t> rows;
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t j = 0; j < head_size; ++j)
      // The rows of a head in the order 0, D/2, 1, D/2 + 1, ..
      rows.push_back(h * head_size + j % 2 * (head_size / 2) + j / 2);
  return rows;
}

void add_llama(GgufModel& out, const Llama& net, const GgufParameters& from) {
  add_keys(out, net);
  add_scaling(out, net);
  out.tensors.push_back(from.tensor(net.tokens + ".weight", "token_embd.weight"));
  out.tensors.push_back(from.tensor(net.norm + ".weight", "output_norm.weight"));
  if (!from.same(net.head + ".weight", net.tokens + ".weight"))
    out.tensors.push_back(from.tensor(net.head + ".weight", "output.weight"));
  for (std::size_t i = 0; i < net.blocks.size(); ++i) add_block(out, net, from, i);
}

}  // namespace fq::detail
