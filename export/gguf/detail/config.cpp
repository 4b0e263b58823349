#include "fakequant/export/gguf/detail/config.h"

#include <optional>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/export/onnx/reader/node_reader.h"
#include "fakequant/export/safetensors/detail/weight_names.h"
#include "fakequant/layers/modules/rotary_scaling.h"

namespace fq::detail {
namespace {

using nlohmann::ordered_json;

const WeightRename kNames[] = {
    {"transformer.wte.*", "token_embd.*"},
    {"transformer.wpe.*", "position_embd.*"},
    {"transformer.ln_f.*", "output_norm.*"},
    {"transformer.h.*.ln_1.*", "blk.*.attn_norm.*"},
    {"transformer.h.*.attn.c_attn.*", "blk.*.attn_qkv.*"},
    {"transformer.h.*.attn.c_proj.*", "blk.*.attn_output.*"},
    {"transformer.h.*.ln_2.*", "blk.*.ffn_norm.*"},
    {"transformer.h.*.mlp.c_fc.*", "blk.*.ffn_up.*"},
    {"transformer.h.*.mlp.c_proj.*", "blk.*.ffn_down.*"},
    {"model.embed_tokens.*", "token_embd.*"},
    {"model.norm.*", "output_norm.*"},
    {"model.layers.*.input_layernorm.*", "blk.*.attn_norm.*"},
    {"model.layers.*.self_attn.o_proj.*", "blk.*.attn_output.*"},
    {"model.layers.*.self_attn.q_proj.*", "blk.*.attn_q.*"},
    {"model.layers.*.self_attn.k_proj.*", "blk.*.attn_k.*"},
    {"model.layers.*.self_attn.v_proj.*", "blk.*.attn_v.*"},
    {"model.layers.*.post_attention_layernorm.*", "blk.*.ffn_norm.*"},
    {"model.layers.*.mlp.gate_proj.*", "blk.*.ffn_gate.*"},
    {"model.layers.*.mlp.up_proj.*", "blk.*.ffn_up.*"},
    {"model.layers.*.mlp.down_proj.*", "blk.*.ffn_down.*"},
    {"lm_head.*", "output.*"},
};

class Keys {
 public:
  Keys(const GgufModel& model, const std::string& file) : model_(model), file_(file) {
    architecture = text("general.architecture").value_or("");
  }

  std::string architecture;

  [[noreturn]] void fail(const std::string& why) const {
    throw FileError(file_, {}, fmt::format("[import] {}: {}", file_, why));
  }
  [[nodiscard]] std::optional<std::string> text(const std::string& key) const {
    const GgufValue* found = model_.value(key);
    if (found == nullptr) return std::nullopt;
    if (!std::holds_alternative<std::string>(*found)) fail(fmt::format("the key '{}' is no text", key));
    return std::get<std::string>(*found);
  }
  /// A number behind the architecture's name; null where it is not there.
  [[nodiscard]] ordered_json number(const char* key) const {
    const std::string name = architecture + "." + key;
    const GgufValue* found = model_.value(name);
    if (found == nullptr) return nullptr;
    return std::visit(
        [&](const auto& value) -> ordered_json {
          using T = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<T, float>) return shortest(value);
          if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
            return value;
          else
            fail(fmt::format("the key '{}' is no number", name));
        },
        *found);
  }
  [[nodiscard]] ordered_json needed(const char* key) const {
    ordered_json found = number(key);
    if (found.is_null()) fail(fmt::format("the key '{}.{}' is missing", architecture, key));
    return found;
  }
  [[nodiscard]] std::int64_t vocabulary() const {
    const GgufTensor* table = model_.tensor("token_embd.weight");
    if (table == nullptr || table->shape.size() != 2) fail("the table 'token_embd.weight' is missing");
    return table->shape[0];
  }
  [[nodiscard]] bool has(const char* tensor) const { return model_.tensor(tensor) != nullptr; }

 private:
  const GgufModel& model_;
  const std::string& file_;
};

ordered_json of_gpt2(const Keys& keys) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"n_embd", keys.needed("embedding_length")},
          {"n_inner", keys.number("feed_forward_length")},
          {"n_positions", keys.needed("context_length")},
          {"n_layer", keys.needed("block_count")},
          {"n_head", keys.needed("attention.head_count")},
          {"layer_norm_epsilon", keys.number("attention.layer_norm_epsilon")},
          {"activation_function", "gelu_new"},
          {"vocab_size", keys.vocabulary()},
          {"tie_word_embeddings", !keys.has("output.weight")}};
}

/// "rope_parameters" of config.json; null where positions are not scaled.
ordered_json scaling_of(const Keys& keys) {
  const auto type = keys.text(keys.architecture + ".rope.scaling.type");
  if (!type || *type == "none") return nullptr;
  if (*type != "linear" && *type != "yarn")
    keys.fail(fmt::format(
        "rotary positions are scaled by '{}', which is not computed: known are linear, yarn", *type));
  ordered_json out{{"rope_type", *type}, {"factor", keys.needed("rope.scaling.factor")}};
  if (*type == "linear") return out;
  out["original_max_position_embeddings"] = keys.needed("rope.scaling.original_context_length");
  out["beta_fast"] = keys.number("rope.scaling.yarn_beta_fast");
  out["beta_slow"] = keys.number("rope.scaling.yarn_beta_slow");
  const ordered_json more = keys.number("rope.scaling.attn_factor");
  if (!more.is_null() && more.get<double>() != 1)
    out["attention_factor"] =
        more.get<double>() * rotary_magnitude({.kind = RotaryScaling::Kind::yarn, .factor = out["factor"]});
  return out;
}

void check_rotary(const Keys& keys, const ordered_json& head) {
  if (keys.has("rope_freqs.weight"))
    keys.fail("rotary positions have factors ('rope_freqs.weight'), which are not computed");
  const ordered_json turned = keys.number("rope.dimension_count");
  if (!turned.is_null() && !head.is_null() && turned != head)
    keys.fail(fmt::format("positions turn {} of the {} numbers of a head, which is not computed",
                          turned.dump(), head.dump()));
}

ordered_json of_llama(const Keys& keys) {
  const ordered_json head = keys.number("attention.key_length"),
                     value = keys.number("attention.value_length");
  if (head != value) keys.fail("keys and values have heads of other sizes, which is not computed");
  check_rotary(keys, head);
  ordered_json out{
      {"architectures", {keys.architecture == "qwen2" ? "Qwen2ForCausalLM" : "LlamaForCausalLM"}},
      {"hidden_size", keys.needed("embedding_length")},
      {"intermediate_size", keys.needed("feed_forward_length")},
      {"num_hidden_layers", keys.needed("block_count")},
      {"num_attention_heads", keys.needed("attention.head_count")},
      {"num_key_value_heads", keys.number("attention.head_count_kv")},
      {"head_dim", head},
      {"max_position_embeddings", keys.needed("context_length")},
      {"rms_norm_eps", keys.needed("attention.layer_norm_rms_epsilon")},
      {"rope_theta", keys.number("rope.freq_base")},
      {"rope_parameters", scaling_of(keys)},
      {"hidden_act", "silu"},
      {"vocab_size", keys.vocabulary()},
      {"tie_word_embeddings", !keys.has("output.weight")}};
  return out;
}

}  // namespace

nlohmann::ordered_json gguf_config(const GgufModel& model, const std::string& file) {
  const Keys keys(model, file);
  if (keys.architecture == "gpt2") return of_gpt2(keys);
  if (keys.architecture == "llama" || keys.architecture == "qwen2") return of_llama(keys);
  keys.fail(fmt::format("the architecture is '{}': known are gpt2, llama, qwen2",
                        keys.architecture.substr(0, 100)));
}

std::string gguf_name(const std::string& theirs) {
  std::string out;
  for (const auto& rename : kNames)
    if (rename_weight(rename, theirs, out)) return out;
  return {};
}

}  // namespace fq::detail
