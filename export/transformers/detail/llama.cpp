#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/export/transformers/detail/config.h"
#include "fakequant/export/transformers/detail/plan.h"
#include "fakequant/layers/modules/rotary_scaling.h"

namespace fq::detail {
namespace {

constexpr double kLargestRotaryBase = 1e12, kLargestNumber = 1e6, kLeastNumber = 1e-6;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 31;

// transformers writes null for settings that have their default.
bool is_given(const JsonValue& values, const char* key) {
  return values.has(key) && !values.at(key).json().is_null();
}
double positive_or(const JsonValue& values, const char* key, double fallback) {
  return is_given(values, key) ? values.at(key).number(kLeastNumber, kLargestNumber) : fallback;
}

void check_whole_heads(const TransformerConfig& config, const std::optional<JsonValue>& values) {
  constexpr const char* key = "partial_rotary_factor";
  const auto check = [](const JsonValue& share) {
    if (share.number(0, 1) != 1)
      share.fail("rotary positions rotate only a part of each head, which is not supported");
  };
  if (config.has(key)) check(config.at(key));
  if (values && is_given(*values, key)) check(values->at(key));
}

/// Returns the type of scaling, by default "default".
std::string scaling_kind(const JsonValue& values) {
  // "type" is the older name of the key.
  for (const char* key : {"rope_type", "type"}) {
    if (!is_given(values, key)) continue;
    const std::string kind = values.at(key).string();
    const auto& known = rotary_scalings();
    if (kind != "default" && std::find(known.begin(), known.end(), kind) == known.end())
      values.at(key).fail(
          fmt::format("rotary positions are scaled by '{}', which is not supported: use default, {}", kind,
                      fmt::join(known, ", ")));
    return kind;
  }
  return "default";
}

// Returns the context length of the training. Dynamic scaling compares the text with the model's own maximum,
// as `_compute_dynamic_ntk_parameters` of transformers.
std::int64_t training_context(const TransformerConfig& config, const JsonValue& values,
                              const std::string& kind) {
  constexpr const char *own = "original_max_position_embeddings", *whole = "max_position_embeddings";
  if (kind != "dynamic" && config.has(own)) return config.size(own);
  if (kind != "dynamic" && is_given(values, own)) return values.at(own).integer(1, kMostTokens);
  return config.at(whole).integer(1, kMostTokens);
}

// Returns the magnitude of YaRN as `_compute_yarn_parameters` of transformers, or 0 for the default of the
// paper, 0.1 ln(factor) + 1. The ratio of two magnitudes (mscale, mscale_all_dim) comes from DeepSeek's
// networks.
double attention_factor(const JsonValue& values, double factor) {
  if (is_given(values, "attention_factor"))
    return values.at("attention_factor").number(kLeastNumber, kLargestNumber);
  if (!is_given(values, "mscale") || !is_given(values, "mscale_all_dim")) return 0;
  const double one = values.at("mscale").number(0, kLargestNumber),
               all = values.at("mscale_all_dim").number(0, kLargestNumber);
  const auto scale = [&](double by) { return factor <= 1 ? 1.0 : 0.1 * by * std::log(factor) + 1.0; };
  return one == 0 || all == 0 ? 0 : scale(one) / scale(all);
}

NodeOptions scaled_options(const TransformerConfig& config, const JsonValue& values,
                           const std::string& kind) {
  const auto context = kind == "linear" ? std::int64_t{0} : training_context(config, values, kind);
  // A missing factor of YaRN is the ratio of the context lengths.
  const bool by_lengths = kind == "yarn" && !is_given(values, "factor");
  const double factor =
      by_lengths ? static_cast<double>(config.size("max_position_embeddings")) / static_cast<double>(context)
                 : values.at("factor").number(1, kLargestNumber);
  NodeOptions out{{"rotary_scaling", kind}, {"rotary_factor", factor}};
  if (context > 0) out["rotary_context"] = context;
  if (kind == "llama3") {
    out["rotary_low"] = values.at("low_freq_factor").number(kLeastNumber, kLargestNumber);
    out["rotary_high"] = values.at("high_freq_factor").number(kLeastNumber, kLargestNumber);
  }
  if (kind == "yarn") {
    out["rotary_fast"] = positive_or(values, "beta_fast", 32);
    out["rotary_slow"] = positive_or(values, "beta_slow", 1);
    if (is_given(values, "truncate")) out["rotary_whole_pairs"] = values.at("truncate").boolean();
    if (const double by = attention_factor(values, factor); by > 0) out["rotary_magnitude"] = by;
  }
  return out;
}

/// Returns the options of a node `attention` that define the angles: "rotary_base" and, if "rope_scaling" or
/// "rope_parameters" have another type than "default", "rotary_scaling" and its numbers. Throws FileError
/// with the line for unsupported types (naming the supported types), for numbers that are missing or out of
/// range, and for positions that rotate only a part of each head.
NodeOptions rotary_options(const TransformerConfig& config) {
  double base = config.number_or("rope_theta", 10000, 1, kLargestRotaryBase);
  std::optional<JsonValue> values;
  // "rope_parameters" replaces "rope_scaling" and "rope_theta" in newer files, so it overrides both.
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (config.has(key)) values = config.at(key);
  check_whole_heads(config, values);
  if (!values) return {{"rotary_base", base}};
  if (is_given(*values, "rope_theta")) base = values->at("rope_theta").number(1, kLargestRotaryBase);
  NodeOptions out{{"rotary_base", base}};
  if (const std::string kind = scaling_kind(*values); kind != "default")
    out.update(scaled_options(config, *values, kind));
  return out;
}

constexpr std::int64_t kTokens = 2048;  // default length of a sample

/// Differences between these architectures that config.json does not contain.
struct Kind {
  bool inner_bias, out_bias;  ///< biases of q, k and v; of the output projection
  bool norms;                 ///< norms of queries and keys
};

Kind read_kind(const TransformerConfig& config) {
  const std::string name = config.architecture();
  const bool bias = config.flag_or("attention_bias", false);
  // The code of Qwen2 fixes its biases. Its config.json has no key for them.
  if (name == "Qwen2ForCausalLM") return {true, false, false};
  return {bias, bias, name == "Qwen3ForCausalLM"};
}

class LlamaPlan {
 public:
  explicit LlamaPlan(const TransformerConfig& config)
      : config_(config),
        kind_(read_kind(config)),
        width_(config.size("hidden_size")),
        inner_(config.size("intermediate_size")),
        vocabulary_(config.size("vocab_size")),
        heads_(config.size("num_attention_heads")),
        kv_heads_(config.size_or("num_key_value_heads", heads_)),
        head_(config.size_or("head_dim", std::max<std::int64_t>(width_ / heads_, 1))) {
    config.check_no_window();
  }

  TransformerPlan run(const ImportOptions& options) {
    check_one_input(options);
    const std::int64_t context = config_.size_or("max_position_embeddings", kTokens),
                       tokens = planned_tokens(options, std::min(context, kTokens), context);
    out_.prefix = "model.";
    out_.passed_over = {"*rotary_emb.inv_freq"};
    out_.sample = {tokens};
    out_.output = {vocabulary_, tokens};
    // Nested graphs give the parameters the paths of the file, "model.layers.0.mlp.up_proj".
    ModelNodes layers, body;
    out_.table("model.embed_tokens", "model.embed_tokens", vocabulary_, width_);
    const std::int64_t count = config_.at("num_hidden_layers").integer(1, 1000);
    for (std::int64_t i = 0; i < count; ++i)
      layers.push_back(layer(std::to_string(i), fmt::format("model.layers.{}", i)));
    body.push_back(plan_node("embed_tokens", "embedding", {{"vocabulary", vocabulary_}, {"width", width_}}));
    body.push_back(plan_graph("layers", std::move(layers)));
    body.push_back(norm("norm", "model.norm"));
    out_.add(plan_graph("model", std::move(body)));
    out_.head(width_, vocabulary_, config_.flag_or("tie_word_embeddings", false) ? "model.embed_tokens" : "");
    return std::move(out_);
  }

 private:
  ModelNode norm(const std::string& name, const std::string& path,
                 const std::vector<std::string>& inputs = {}) {
    out_.norm(path, path, width_, false);
    return plan_node(name, "rms_norm", {{"eps", eps()}}, inputs);
  }
  [[nodiscard]] double eps() const { return config_.number_or("rms_norm_eps", 1e-6, 1e-12, 1); }

  ModelNode attention(const std::string& path) {
    const std::int64_t queries = heads_ * head_, keys = kv_heads_ * head_;
    out_.linear(path + ".q_proj", path + ".q_proj", width_, queries, kind_.inner_bias);
    out_.linear(path + ".k_proj", path + ".k_proj", width_, keys, kind_.inner_bias);
    out_.linear(path + ".v_proj", path + ".v_proj", width_, keys, kind_.inner_bias);
    out_.linear(path + ".out_proj", path + ".o_proj", queries, width_, kind_.out_bias);
    NodeOptions options{{"heads", heads_}};
    if (kv_heads_ != heads_) options["kv_heads"] = kv_heads_;
    if (head_ * heads_ != width_) options["head_size"] = head_;
    options.update({{"causal", true}, {"rotary", true}});
    options.update(rotary_options(config_));
    if (kind_.norms) {
      options["qk_norm"] = eps();
      for (const char* name : {".q_norm", ".k_norm"}) out_.norm(path + name, path + name, head_, false);
    }
    options["bias"] = kind_.inner_bias;
    if (kind_.out_bias != kind_.inner_bias) options["out_bias"] = kind_.out_bias;
    return plan_node("self_attn", "attention", std::move(options));
  }

  ModelNode mlp(const std::string& path) {
    const bool bias = config_.flag_or("mlp_bias", false);
    out_.linear(path + ".gate_proj", path + ".gate_proj", width_, inner_, bias);
    out_.linear(path + ".up_proj", path + ".up_proj", width_, inner_, bias);
    out_.linear(path + ".down_proj", path + ".down_proj", inner_, width_, bias);
    const auto linear = [&](const char* name, std::int64_t features, const std::vector<std::string>& inputs) {
      NodeOptions options{{"out_features", features}};
      if (!bias) options["bias"] = false;
      return plan_node(name, "linear", std::move(options), inputs);
    };
    ModelNodes nodes;
    nodes.push_back(linear("gate_proj", inner_, {"input"}));
    nodes.push_back(plan_activation("act_fn", config_.activation("hidden_act", "silu")));
    nodes.push_back(linear("up_proj", inner_, {"input"}));
    nodes.push_back(plan_node("gated", "multiply", {}, {"act_fn", "up_proj"}));
    nodes.push_back(linear("down_proj", width_, {}));
    return plan_graph("mlp", std::move(nodes));
  }

  ModelNode layer(const std::string& name, const std::string& path) {
    ModelNodes nodes;
    nodes.push_back(norm("input_layernorm", path + ".input_layernorm", {"input"}));
    nodes.push_back(attention(path + ".self_attn"));
    nodes.push_back(plan_node("add1", "add", {}, {"self_attn", "input"}));
    nodes.push_back(norm("post_attention_layernorm", path + ".post_attention_layernorm"));
    nodes.push_back(mlp(path + ".mlp"));
    nodes.push_back(plan_node("add2", "add", {}, {"mlp", "add1"}));
    return plan_graph(name, std::move(nodes));
  }

  const TransformerConfig& config_;
  Kind kind_;
  std::int64_t width_, inner_, vocabulary_, heads_, kv_heads_, head_;
  TransformerPlan out_;
};

}  // namespace

TransformerPlan plan_llama(const TransformerConfig& config, const ImportOptions& options) {
  return LlamaPlan(config).run(options);
}

}  // namespace fq::detail
