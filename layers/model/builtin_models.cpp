#include "fakequant/layers/model/builtin_models.h"

#include <algorithm>

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/layers/model/detail/model_nodes.h"

namespace fq {
namespace {

using detail::JsonValue;
using detail::ModelNodes;
using nlohmann::ordered_json;

constexpr std::int64_t kLargestWidth = 1 << 20;

/// Nodes that follow each other, named as they come.
class Nodes {
 public:
  using Inputs = std::vector<std::string>;

  explicit Nodes(bool signals = false) : convolution_(signals ? "conv1d" : "conv2d") {}
  /// Appends a node and returns its name.
  std::string add(const std::string& name, const char* type, ordered_json options = {}, Inputs inputs = {}) {
    list_.push_back({name, type, std::move(options), std::move(inputs), {}});
    return name;
  }
  std::string conv_bn(const std::string& name, std::int64_t width, int kernel, int stride,
                      const Inputs& inputs = {}) {
    ordered_json options{{"out_channels", width}, {"kernel", kernel}};
    if (stride != 1) options["stride"] = stride;
    if (kernel > 1) options["padding"] = kernel / 2;
    options["bias"] = false;
    add(name, convolution_, std::move(options), inputs);
    return add(name + "_bn", "batch_norm");
  }
  std::string linear(const std::string& name, const ordered_json& features) {
    return add(name, "linear", {{"out_features", features}});
  }
  [[nodiscard]] const ModelNodes& list() const noexcept { return list_; }

 private:
  const char* convolution_;
  ModelNodes list_;
};

std::vector<std::int64_t> widths(const JsonValue* options, const char* name,
                                 std::vector<std::int64_t> fallback) {
  if (options == nullptr || !options->has(name)) return fallback;
  const auto value = options->at(name);
  std::vector<std::int64_t> out;
  for (const auto& width : value.elements()) out.push_back(width.integer(1, kLargestWidth));
  if (out.empty() || out.size() > 100)
    value.fail(fmt::format("'{}' has {} numbers: give 1 to 100", name, out.size()));
  return out;
}

std::int64_t integer(const JsonValue* options, const char* name, std::int64_t fallback, std::int64_t low,
                     std::int64_t high) {
  return options != nullptr && options->has(name) ? options->at(name).integer(low, high) : fallback;
}

bool on(const JsonValue* options, const char* name) {
  return options != nullptr && options->has(name) && options->at(name).boolean();
}

Nodes mlp(const JsonValue* options) {
  const bool norm = on(options, "batch_norm");
  Nodes nodes;
  nodes.add("flatten", "flatten");
  int layer = 0;
  for (const auto width : widths(options, "hidden", {1024, 1024})) {
    const auto number = std::to_string(++layer);
    nodes.linear("fc" + number, width);
    if (norm) nodes.add("bn" + number, "batch_norm");
    nodes.add("relu" + number, "relu");
  }
  nodes.linear("fc" + std::to_string(layer + 1), "classes");
  return nodes;
}

Nodes cnn(const JsonValue* options) {
  Nodes nodes(on(options, "signals"));
  int layer = 0;
  for (const auto width : widths(options, "widths", {32, 64, 64})) {
    const auto number = std::to_string(++layer);
    nodes.conv_bn("conv" + number, width, 3, 1);
    nodes.add("relu" + number, "relu");
    if (layer > 1) nodes.add("pool" + number, "max_pool", {{"kernel", 2}});
  }
  nodes.add("flatten", "flatten");
  if (const auto features = integer(options, "features", 0, 0, kLargestWidth); features > 0) {
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

Nodes resnet(const JsonValue* options) {
  const auto stages = widths(options, "widths", {16, 32, 64});
  const auto blocks = integer(options, "blocks", 3, 1, 100);
  Nodes nodes(on(options, "signals"));
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

/// x + f(norm(x)) twice: attention, then two linear layers. Returns the name of its output.
std::string transformer_block(Nodes& nodes, const std::string& name, std::int64_t width,
                              const ordered_json& attention, const std::string& input) {
  nodes.add(name + "_norm1", "layer_norm", {}, {input});
  nodes.add(name + "_attention", "attention", attention);
  const auto middle = nodes.add(name + "_add1", "add", {}, {name + "_attention", input});
  nodes.add(name + "_norm2", "layer_norm");
  nodes.linear(name + "_fc1", 4 * width);
  nodes.add(name + "_gelu", "gelu");
  nodes.linear(name + "_fc2", width);
  return nodes.add(name + "_add2", "add", {}, {name + "_fc2", middle});
}

Nodes gpt(const JsonValue* options) {
  const auto layers = integer(options, "layers", 4, 1, 1000),
             width = integer(options, "width", 128, 1, kLargestWidth),
             heads = integer(options, "heads", 4, 1, kLargestWidth),
             kv_heads = integer(options, "kv_heads", heads, 1, kLargestWidth),
             context = integer(options, "context", 256, 1, kLargestWidth);
  const bool rotary = on(options, "rotary");
  ordered_json attention{{"heads", heads}}, vocabulary = "classes";
  if (kv_heads != heads) attention["kv_heads"] = kv_heads;
  attention["causal"] = true;
  if (rotary) attention["rotary"] = true;
  if (options != nullptr && options->has("vocabulary"))
    vocabulary = options->at("vocabulary").integer(1, kLargestWidth);
  Nodes nodes;
  std::string output = nodes.add("tokens", "embedding", {{"vocabulary", vocabulary}, {"width", width}});
  if (!rotary) output = nodes.add("positions", "positions", {{"context", context}});
  for (std::int64_t i = 1; i <= layers; ++i)
    output = transformer_block(nodes, fmt::format("block{}", i), width, attention, output);
  nodes.add("norm", "layer_norm");
  nodes.add("head", "linear", {{"out_features", vocabulary}, {"bias", false}});
  nodes.add("classes_first", "transpose", {{"axes", {0, 2, 1}}});
  return nodes;
}

struct Builtin {
  std::string name;
  std::vector<std::string> options;
  Nodes (*nodes)(const JsonValue* options);
};

const std::vector<Builtin>& builtins() {
  static const std::vector<Builtin> table{
      {"cnn", {"widths", "features", "signals"}, cnn},
      {"gpt", {"layers", "width", "heads", "kv_heads", "context", "vocabulary", "rotary"}, gpt},
      {"mlp", {"hidden", "batch_norm"}, mlp},
      {"resnet20", {"widths", "blocks", "signals"}, resnet},
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
  return found->nodes(options).list();
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
