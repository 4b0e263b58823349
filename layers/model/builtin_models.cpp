#include "fakequant/layers/model/builtin_models.h"

#include <algorithm>

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/layers/model/detail/builtin_nodes.h"
#include "fakequant/layers/model/detail/transformer_nodes.h"

namespace fq {
namespace {

using detail::JsonValue;
using detail::ModelNodes;
using Nodes = detail::BuiltinNodes;
using Options = detail::BuiltinOptions;
using detail::kLargestWidth;
using nlohmann::ordered_json;

Nodes mlp(Options options) {
  const bool norm = options.on("batch_norm");
  Nodes nodes;
  nodes.add("flatten", "flatten");
  int layer = 0;
  for (const auto width : options.sizes("hidden", {1024, 1024})) {
    const auto number = std::to_string(++layer);
    nodes.linear("fc" + number, width);
    if (norm) nodes.add("bn" + number, "batch_norm");
    nodes.add("relu" + number, "relu");
  }
  nodes.linear("fc" + std::to_string(layer + 1), "classes");
  return nodes;
}

Nodes cnn(Options options) {
  Nodes nodes(options.on("signals"));
  int layer = 0;
  for (const auto width : options.sizes("widths", {32, 64, 64})) {
    const auto number = std::to_string(++layer);
    nodes.conv_bn("conv" + number, width, 3, 1);
    nodes.add("relu" + number, "relu");
    if (layer > 1) nodes.add("pool" + number, "max_pool", {{"kernel", 2}});
  }
  nodes.add("flatten", "flatten");
  if (const auto features = options.integer("features", 0, 0, kLargestWidth); features > 0) {
    nodes.linear("features", features);
    nodes.add("features_bn", "batch_norm");
    nodes.add("features_relu", "relu");
  }
  nodes.linear("fc", "classes");
  return nodes;
}

/// Two 3x3 convolutions beside a shortcut; returns the name of its output.
std::string residual_block(Nodes& nodes, const std::string& name, std::int64_t width, bool halve,
                           const std::string& input) {
  nodes.conv_bn(name + "_conv1", width, 3, halve ? 2 : 1, {input});
  nodes.add(name + "_relu1", "relu");
  const auto branch = nodes.conv_bn(name + "_conv2", width, 3, 1);
  const auto shortcut = halve ? nodes.conv_bn(name + "_shortcut", width, 1, 2, {input}) : input;
  nodes.add(name + "_add", "add", {}, {branch, shortcut});
  return nodes.add(name + "_relu2", "relu");
}

Nodes resnet(Options options) {
  const auto stages = options.sizes("widths", {16, 32, 64});
  const auto blocks = options.integer("blocks", 3, 1, 100);
  Nodes nodes(options.on("signals"));
  nodes.conv_bn("conv1", stages[0], 3, 1);
  std::string output = nodes.add("relu1", "relu");
  for (std::size_t s = 0; s < stages.size(); ++s)
    for (std::int64_t b = 0; b < blocks; ++b) {
      const bool first = b == 0 && s > 0;  // the first stage keeps the size and width of conv1
      output = residual_block(nodes, fmt::format("stage{}_block{}", s + 1, b + 1), stages[s], first, output);
    }
  nodes.add("pool", "global_avg_pool");
  nodes.add("flatten", "flatten");
  nodes.linear("fc", "classes");
  return nodes;
}

struct Builtin {
  std::string name;
  std::vector<std::string> options;
  Nodes (*nodes)(Options options);
};

const std::vector<Builtin>& builtins() {
  static const std::vector<Builtin> table{
      {"cnn", {"widths", "features", "signals"}, cnn},
      {"encoder", detail::encoder_options(), detail::encoder_nodes},
      {"gpt", detail::gpt_options(), detail::gpt_nodes},
      {"mlp", {"hidden", "batch_norm"}, mlp},
      {"resnet20", {"widths", "blocks", "signals"}, resnet},
      {"vit", detail::vit_options(), detail::vit_nodes},
  };
  return table;
}

}  // namespace

std::vector<std::string> builtin_models() {
  std::vector<std::string> names;
  for (const auto& builtin : builtins()) names.push_back(builtin.name);
  return names;
}

namespace detail {
namespace {

ModelNodes with_all_inputs(std::string_view name, const JsonValue* options) {
  const auto found = std::ranges::find(builtins(), name, &Builtin::name);
  FQ_CHECK(found != builtins().end(), "model", "there is no built-in model '{}'{}", name,
           did_you_mean(name, builtin_models()));
  if (options != nullptr) options->expect_keys(found->options, fmt::format("of {}", name));
  return found->nodes(Options(options)).list();
}

ModelNodes with_all_inputs(std::string_view name, std::string_view options) {
  if (options.empty()) return with_all_inputs(name, nullptr);
  const JsonText text(options, fmt::format("options of {}", name));
  const JsonValue value(text);
  return with_all_inputs(name, &value);
}

ModelNodes without_default_inputs(ModelNodes nodes) {
  std::string previous = "input";
  for (auto& node : nodes) {
    drop_default_inputs(node, previous);
    previous = node.name;
  }
  return nodes;
}

}  // namespace

ModelNodes builtin_nodes(std::string_view name, const JsonValue* options) {
  return without_default_inputs(with_all_inputs(name, options));
}

ModelNodes builtin_nodes(std::string_view name, std::string_view options) {
  return without_default_inputs(with_all_inputs(name, options));
}

}  // namespace detail

std::string builtin_model_text(std::string_view name, std::string_view options) {
  auto list = ordered_json::array();
  for (auto& node : detail::with_all_inputs(name, options)) {
    ordered_json entry{{"name", std::move(node.name)}, {"type", std::move(node.type)}};
    if (!node.options.empty()) entry["options"] = std::move(node.options);
    if (!node.inputs.empty()) entry["inputs"] = std::move(node.inputs);
    list.push_back(std::move(entry));
  }
  return detail::model_text({{"name", name}, {"nodes", std::move(list)}});
}

}  // namespace fq
