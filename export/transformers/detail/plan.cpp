#include "fakequant/export/transformers/detail/plan.h"

#include "fakequant/core/detail/check.h"

namespace fq::detail {

void TransformerPlan::linear(const std::string& ours, const std::string& theirs, std::int64_t in,
                             std::int64_t out, bool bias) {
  places.push_back({.parameter = ours + ".weight", .shape = {out, in}, .names = {theirs + ".weight"}});
  if (bias) places.push_back({.parameter = ours + ".bias", .shape = {out}, .names = {theirs + ".bias"}});
}

// gamma and beta are the names in BERT files that were converted from TensorFlow.
void TransformerPlan::norm(const std::string& ours, const std::string& theirs, std::int64_t width,
                           bool bias) {
  places.push_back(
      {.parameter = ours + ".weight", .shape = {width}, .names = {theirs + ".weight", theirs + ".gamma"}});
  if (bias)
    places.push_back(
        {.parameter = ours + ".bias", .shape = {width}, .names = {theirs + ".bias", theirs + ".beta"}});
}

void TransformerPlan::table(const std::string& ours, const std::string& theirs, std::int64_t rows,
                            std::int64_t width) {
  places.push_back({.parameter = ours + ".weight", .shape = {rows, width}, .names = {theirs + ".weight"}});
}

void TransformerPlan::head(std::int64_t width, std::int64_t vocabulary, const std::string& tied) {
  NodeOptions options{{"out_features", vocabulary}, {"bias", false}};
  if (tied.empty()) {
    linear("lm_head", "lm_head", width, vocabulary, false);
  } else {
    // Both layers share one parameter, also in training.
    options["weight_of"] = tied;
    // Some files store the shared table twice.
    passed_over.emplace_back("lm_head.weight");
  }
  add(plan_node("lm_head", "linear", std::move(options)));
  // [N, L, V] becomes [N, V, L], because losses expect the classes on axis 1.
  add(plan_node("classes_first", "transpose", {{"axes", Shape{0, 2, 1}}}));
}

ModelNode plan_node(const std::string& name, const std::string& type, NodeOptions options,
                    const std::vector<std::string>& inputs) {
  return {.name = name, .type = type, .options = std::move(options), .inputs = inputs};
}

ModelNode plan_graph(const std::string& name, ModelNodes nodes) {
  return {.name = name, .type = "graph", .nodes = std::move(nodes)};
}

ModelNode plan_activation(const std::string& name, ModelNode node) {
  node.name = name;
  return node;
}

std::int64_t planned_tokens(const ImportOptions& options, std::int64_t fallback, std::int64_t most) {
  if (options.sample_shape.empty()) return fallback;
  FQ_CHECK(options.sample_shape.size() == 1, "import_transformers",
           "the sample shape is {}: use only the number of tokens", to_string(options.sample_shape));
  const std::int64_t tokens = options.sample_shape[0];
  FQ_CHECK(tokens >= 1 && (most == 0 || tokens <= most), "import_transformers",
           "samples have {} tokens, the network has {} positions: use at most this number", tokens, most);
  return tokens;
}

void check_one_input(const ImportOptions& options) {
  FQ_CHECK(options.fixed_inputs.empty(), "import_transformers",
           "'{}' is fixed, but the network has only ids as input. Remove the option",
           options.fixed_inputs.begin()->first);
  FQ_CHECK(options.output.empty(), "import_transformers",
           "output: the network has only one, but '{}' was given. Remove the option", options.output);
}

}  // namespace fq::detail
