#include "fakequant/export/gguf/model.h"

#include <optional>

#include <fmt/format.h>

#include "fakequant/export/gguf/detail/gpt2.h"
#include "fakequant/export/gguf/detail/llama.h"
#include "fakequant/export/gguf/detail/vocabulary.h"
#include "fakequant/layers/modules/detail/on_host.h"
#include "fakequant/layers/quantizer/compress.h"

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
  out.metadata.emplace_back("gpt2.attention.layer_norm_epsilon", 1e-5f);
}

void add_gpt2_tensors(GgufModel& out, const detail::Gpt2& net, const detail::GgufParameters& from) {
  const auto both = [&](const std::string& ours, const std::string& name) {
    for (const char* part : {".weight", ".bias"})
      out.tensors.push_back(from.tensor(ours + part, name + part));
  };
  out.tensors.push_back(from.tensor(net.tokens + ".weight", "token_embd.weight"));
  out.tensors.push_back(from.tensor(net.positions + ".weight", "position_embd.weight", true));
  both(net.norm, "output_norm");
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
  const auto gpt2 = detail::gpt2_of(model, input_shape);
  const auto llama = gpt2 ? std::nullopt : detail::llama_of(model, input_shape);
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
  if (!options.vocabulary.empty() && (gpt2 || llama))
    detail::add_vocabulary(out, options, gpt2 ? gpt2->vocabulary : llama->vocabulary);
  return out;
}

}  // namespace fq
