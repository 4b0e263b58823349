#include <fmt/format.h>

#include "fakequant/export/transformers/detail/plan.h"

namespace fq::detail {
namespace {

class Gpt2Plan {
 public:
  explicit Gpt2Plan(const TransformerConfig& config)
      : config_(config),
        width_(config.size("n_embd")),
        inner_(config.size_or("n_inner", 4 * width_)),
        vocabulary_(config.size("vocab_size")),
        context_(config.size("n_positions")) {
    // These settings change the scores of attention or add a second attention.
    for (const char* key :
         {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention"})
      config.expect(key, false);
    config.expect("scale_attn_weights", true);
  }

  TransformerPlan run(const ImportOptions& options) {
    check_one_input(options);
    const std::int64_t tokens = planned_tokens(options, context_, context_);
    out_.prefix = "transformer.";
    // Buffers of the causal mask, which older versions of transformers saved with the weights.
    out_.passed_over = {"*.attn.bias", "*.attn.masked_bias"};
    out_.sample = {tokens};
    out_.output = {vocabulary_, tokens};
    ModelNodes blocks, body;
    out_.table("transformer.wte", "transformer.wte", vocabulary_, width_);
    out_.table("transformer.wpe", "transformer.wpe", context_, width_);
    const std::int64_t layers = config_.at("n_layer").integer(1, 1000);
    for (std::int64_t i = 0; i < layers; ++i)
      blocks.push_back(block(std::to_string(i), fmt::format("transformer.h.{}", i)));
    out_.norm("transformer.ln_f", "transformer.ln_f", width_, true);
    body.push_back(plan_node("wte", "embedding", {{"vocabulary", vocabulary_}, {"width", width_}}));
    body.push_back(plan_node("wpe", "positions", {{"context", context_}}));
    body.push_back(plan_graph("h", std::move(blocks)));
    body.push_back(norm("ln_f"));
    out_.add(plan_graph("transformer", std::move(body)));
    out_.head(width_, vocabulary_, config_.flag_or("tie_word_embeddings", true) ? "transformer.wte" : "");
    return std::move(out_);
  }

 private:
  [[nodiscard]] ModelNode norm(const std::string& name, const std::vector<std::string>& inputs = {}) const {
    return plan_node(name, "layer_norm", {{"eps", config_.number_or("layer_norm_epsilon", 1e-5, 1e-12, 1)}},
                     inputs);
  }

  // Adds outputs `first` to `first + out` of a Conv1D of transformers, a linear layer whose weight is [in,
  // outputs].
  void conv1d(const std::string& ours, const std::string& theirs, std::int64_t in, std::int64_t out,
              std::int64_t first = 0, std::int64_t outputs = 0) {
    out_.places.push_back({.parameter = ours + ".weight",
                           .shape = {out, in},
                           .names = {theirs + ".weight"},
                           .transposed = true,
                           .first = first,
                           .outputs = outputs});
    out_.places.push_back({.parameter = ours + ".bias",
                           .shape = {out},
                           .names = {theirs + ".bias"},
                           .first = first,
                           .outputs = outputs});
  }

  // Pre-norm: x + attn(ln_1(x)), then x + mlp(ln_2(x)).
  ModelNode block(const std::string& name, const std::string& path) {
    out_.norm(path + ".ln_1", path + ".ln_1", width_, true);
    // c_attn has queries, keys and values stacked along its outputs.
    std::int64_t first = 0;
    for (const char* projection : {".attn.q_proj", ".attn.k_proj", ".attn.v_proj"}) {
      conv1d(path + projection, path + ".attn.c_attn", width_, width_, first, 3 * width_);
      first += width_;
    }
    conv1d(path + ".attn.out_proj", path + ".attn.c_proj", width_, width_);
    out_.norm(path + ".ln_2", path + ".ln_2", width_, true);
    conv1d(path + ".mlp.c_fc", path + ".mlp.c_fc", width_, inner_);
    conv1d(path + ".mlp.c_proj", path + ".mlp.c_proj", inner_, width_);
    ModelNodes mlp, nodes;
    mlp.push_back(plan_node("c_fc", "linear", {{"out_features", inner_}}));
    mlp.push_back(plan_activation("act", config_.activation("activation_function", "gelu_new")));
    mlp.push_back(plan_node("c_proj", "linear", {{"out_features", width_}}));
    nodes.push_back(norm("ln_1", {"input"}));
    nodes.push_back(plan_node("attn", "attention", {{"heads", config_.size("n_head")}, {"causal", true}}));
    nodes.push_back(plan_node("add1", "add", {}, {"attn", "input"}));
    nodes.push_back(norm("ln_2"));
    nodes.push_back(plan_graph("mlp", std::move(mlp)));
    nodes.push_back(plan_node("add2", "add", {}, {"mlp", "add1"}));
    return plan_graph(name, std::move(nodes));
  }

  const TransformerConfig& config_;
  std::int64_t width_, inner_, vocabulary_, context_;
  TransformerPlan out_;
};

}  // namespace

TransformerPlan plan_gpt2(const TransformerConfig& config, const ImportOptions& options) {
  return Gpt2Plan(config).run(options);
}

}  // namespace fq::detail
