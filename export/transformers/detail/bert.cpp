#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/export/transformers/detail/plan.h"

namespace fq::detail {
namespace {

using Names = std::vector<std::string>;

constexpr double kHidden = 1e30;  // a score lowered by it has no weight
constexpr const char *kMask = "attention_mask", *kTypes = "token_type_ids";

/// Returns the integer that an input is fixed to.
std::int64_t fixed_number(const std::string& name, const Tensor& value) {
  FQ_CHECK(value.numel() == 1, "import_transformers", "'{}' is fixed to {}: use one number for all tokens",
           name, value.describe());
  const double number = value.to(DType::f64).item();
  FQ_CHECK(number == double(std::int64_t(number)), "import_transformers",
           "'{}' is fixed to {}: use a whole number", name, number);
  return std::int64_t(number);
}

class BertPlan {
 public:
  BertPlan(const TransformerConfig& config, const ImportOptions& options)
      : config_(config),
        options_(options),
        width_(config.size("hidden_size")),
        inner_(config.size("intermediate_size")),
        context_(config.size("max_position_embeddings")),
        types_(config.size("type_vocab_size")),
        tokens_(planned_tokens(options, context_, context_)) {
    config.expect("is_decoder", false);
    config.expect("add_cross_attention", false);
    if (config.text_or("position_embedding_type", "absolute") != "absolute")
      config.at("position_embedding_type").fail("positions are relative, which is not supported");
    for (const auto& [name, value] : options.fixed_inputs)
      FQ_CHECK(name == kMask || name == kTypes, "import_transformers",
               "'{}' is fixed: inputs that can be are {} and {}", name, kMask, kTypes);
    FQ_CHECK(!is_fixed(kMask) || fixed_number(kMask, options.fixed_inputs.at(kMask)) == 1,
             "import_transformers",
             "'{}' is fixed to another number than 1: every token of every sample "
             "would be hidden",
             kMask);
  }

  TransformerPlan run() {
    const std::string kind = config_.architecture();
    const bool whole = kind == "BertModel";
    prefix_ = whole ? "" : "bert.";
    name_ = whole ? "" : "bert_";
    out_.prefix = prefix_;
    out_.passed_over = {"*position_ids", "cls.seq_relationship.*"};
    inputs();
    embeddings();
    const std::int64_t layers = config_.at("num_hidden_layers").integer(1, 1000);
    for (std::int64_t i = 0; i < layers; ++i) layer(i);
    if (whole)
      whole_network();
    else if (kind == "BertForMaskedLM")
      masked_language();
    else
      classifier();
    return std::move(out_);
  }

 private:
  [[nodiscard]] bool is_fixed(const char* name) const { return options_.fixed_inputs.contains(name); }

  /// Adds ids, mask and types as parts of the data rows, except fixed inputs.
  void inputs() {
    std::int64_t begin = 0;
    const bool several = !is_fixed(kMask) || !is_fixed(kTypes);
    const auto part = [&](const char* name) {
      out_.add(plan_node(name, "input_part",
                         {{"begin", begin}, {"shape", Shape{tokens_}}, {"name", name}, {"type", "i64"}},
                         {"input"}));
      begin += tokens_;
    };
    if (several) part("input_ids");
    if (!is_fixed(kMask)) part(kMask);
    if (!is_fixed(kTypes)) part(kTypes);
    out_.sample = {several ? begin : tokens_};
    ids_ = several ? "input_ids" : "input";
    if (is_fixed(kMask)) return;
    // Turns the mask into a term of the scores: 1 (visible) gives 0, and 0 (hidden) gives -1e30, whose weight
    // after softmax is 0 in float32. [N, L] becomes [N, 1, 1, L], which broadcasts over heads and queries.
    out_.add(plan_node("hidden", "shift", {{"by", -1}}, {kMask}));
    out_.add(plan_node("hidden_scores", "scale", {{"factor", kHidden}}));
    out_.add(plan_node("mask", "reshape", {{"shape", Shape{1, 1, tokens_}}}));
  }

  void norm(const std::string& path) {
    const std::string name = our_name(path);
    out_.norm(name, prefix_ + path, width_, true);
    out_.add(plan_node(name, "layer_norm", {{"eps", config_.number_or("layer_norm_eps", 1e-12, 1e-12, 1)}}));
  }
  std::string linear(const std::string& path, std::int64_t in, std::int64_t out, const Names& from = {}) {
    const std::string name = our_name(path);
    out_.linear(name, prefix_ + path, in, out);
    out_.add(plan_node(name, "linear", {{"out_features", out}}, from));
    return name;
  }
  // Returns the node name of a path, "encoder_layer_0". A dot would separate a graph from its nodes.
  [[nodiscard]] std::string our_name(std::string path) const {
    for (char& c : path)
      if (c == '.') c = '_';
    return name_ + path;
  }

  void embeddings() {
    const std::string words = our_name("embeddings.word_embeddings"),
                      positions = our_name("embeddings.position_embeddings"),
                      types = our_name("embeddings.token_type_embeddings");
    const std::int64_t vocabulary = config_.size("vocab_size");
    out_.table(words, prefix_ + "embeddings.word_embeddings", vocabulary, width_);
    out_.table(positions, prefix_ + "embeddings.position_embeddings", context_, width_);
    out_.add(plan_node(words, "embedding", {{"vocabulary", vocabulary}, {"width", width_}}, {ids_}));
    out_.add(plan_node(positions, "positions", {{"context", context_}}));
    // With one type for all tokens, the lookup is a vector that is added to every token: one row of the
    // table.
    if (is_fixed(kTypes)) {
      const std::int64_t type = fixed_number(kTypes, options_.fixed_inputs.at(kTypes));
      FQ_CHECK(type >= 0 && type < types_, "import_transformers", "'{}' is fixed to {}: there are {} types",
               kTypes, type, types_);
      out_.places.push_back({.parameter = types + ".value",
                             .shape = {1, width_},
                             .names = {prefix_ + "embeddings.token_type_embeddings.weight"},
                             .first = type,
                             .outputs = types_});
      out_.add(plan_node(types, "parameter", {{"shape", Shape{width_}}}, {positions}));
    } else {
      out_.table(types, prefix_ + "embeddings.token_type_embeddings", types_, width_);
      out_.add(plan_node(types, "embedding", {{"vocabulary", types_}, {"width", width_}}, {kTypes}));
    }
    out_.add(plan_node(our_name("embeddings.sum"), "add", {}, {positions, types}));
    norm("embeddings.LayerNorm");
  }

  [[nodiscard]] std::string last() const { return out_.nodes.back().name; }

  // Post-norm, as in the BERT paper: norm(x + attention(x)), then norm(x + mlp(x)).
  void layer(std::int64_t i) {
    const std::string path = fmt::format("encoder.layer.{}.", i), x = last(),
                      attention = our_name(path + "attention");
    const auto projection = [&](const char* ours, const char* theirs) {
      out_.linear(attention + ours, prefix_ + path + theirs, width_, width_);
    };
    projection(".q_proj", "attention.self.query");
    projection(".k_proj", "attention.self.key");
    projection(".v_proj", "attention.self.value");
    projection(".out_proj", "attention.output.dense");
    out_.add(plan_node(attention, "attention", {{"heads", config_.size("num_attention_heads")}},
                       is_fixed(kMask) ? Names{x} : Names{x, x, "mask"}));
    out_.add(plan_node(our_name(path + "attention.output.sum"), "add", {}, {attention, x}));
    norm(path + "attention.output.LayerNorm");
    const std::string middle = last();
    linear(path + "intermediate.dense", width_, inner_);
    out_.add(plan_activation(our_name(path + "intermediate.act"), config_.activation("hidden_act", "gelu")));
    const std::string down = linear(path + "output.dense", inner_, width_);
    out_.add(plan_node(our_name(path + "output.sum"), "add", {}, {down, middle}));
    norm(path + "output.LayerNorm");
  }

  /// Adds the pooler, which reads the first token.
  void pooler() {
    out_.add(plan_node("first_token", "slice", {{"axis", 1}, {"begin", 0}, {"end", 1}}));
    out_.add(plan_node("first_row", "reshape", {{"shape", Shape{width_}}}));
    linear("pooler.dense", width_, width_);
    out_.add(plan_node(our_name("pooler.activation"), "tanh"));
  }

  void whole_network() {
    const std::string output = options_.output.empty() ? "last_hidden_state" : options_.output;
    FQ_CHECK(output == "last_hidden_state" || output == "pooler_output", "import_transformers",
             "the output '{}' is unknown: a BertModel has last_hidden_state and pooler_output", output);
    out_.output = {tokens_, width_};
    // The file has a pooler although this output does not use it.
    if (output == "last_hidden_state") {
      out_.passed_over.emplace_back("pooler.*");
      return;
    }
    pooler();
    out_.output = {width_};
  }

  void check_one_output() const {
    FQ_CHECK(options_.output.empty(), "import_transformers",
             "output: the network has only one, but '{}' was given. Remove the option", options_.output);
  }

  void classifier() {
    check_one_output();
    // transformers derives the number of labels from the names, by default 2.
    const std::int64_t labels = config_.has("id2label") ? std::int64_t(config_.at("id2label").size())
                                                        : config_.size_or("num_labels", 2);
    pooler();
    out_.linear("classifier", "classifier", width_, labels);
    out_.add(plan_node("classifier", "linear", {{"out_features", labels}}));
    out_.output = {labels};
  }

  void masked_language() {
    check_one_output();
    const std::int64_t vocabulary = config_.size("vocab_size");
    const std::string theirs = "cls.predictions.";
    // With tied weights, decoder.weight is a copy of the word table. The bias is stored under two names.
    out_.passed_over.emplace_back("bert.pooler.*");
    out_.passed_over.emplace_back("cls.predictions.decoder.*");
    out_.passed_over.emplace_back("cls.predictions.bias");
    out_.linear("cls_transform_dense", theirs + "transform.dense", width_, width_);
    out_.add(plan_node("cls_transform_dense", "linear", {{"out_features", width_}}));
    out_.add(plan_activation("cls_transform_act", config_.activation("hidden_act", "gelu")));
    out_.norm("cls_transform_LayerNorm", theirs + "transform.LayerNorm", width_, true);
    out_.add(plan_node("cls_transform_LayerNorm", "layer_norm",
                       {{"eps", config_.number_or("layer_norm_eps", 1e-12, 1e-12, 1)}}));
    NodeOptions options{{"out_features", vocabulary}};
    if (config_.flag_or("tie_word_embeddings", true))
      options["weight_of"] = our_name("embeddings.word_embeddings");
    else
      out_.linear("cls_decoder", theirs + "decoder", width_, vocabulary, false);
    out_.places.push_back({.parameter = "cls_decoder.bias",
                           .shape = {vocabulary},
                           .names = {theirs + "decoder.bias", theirs + "bias"}});
    out_.add(plan_node("cls_decoder", "linear", std::move(options)));
    // [N, L, V] becomes [N, V, L], because losses expect the classes on axis 1.
    out_.add(plan_node("classes_first", "transpose", {{"axes", Shape{0, 2, 1}}}));
    out_.output = {vocabulary, tokens_};
  }

  const TransformerConfig& config_;
  const ImportOptions& options_;
  std::int64_t width_, inner_, context_, types_, tokens_;
  std::string prefix_, name_, ids_;
  TransformerPlan out_;
};

}  // namespace

TransformerPlan plan_bert(const TransformerConfig& config, const ImportOptions& options) {
  return BertPlan(config, options).run();
}

}  // namespace fq::detail
