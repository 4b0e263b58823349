#include "fakequant/layers/model/builtin_models.h"

#include <algorithm>

#include <fmt/format.h>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/layers/model/detail/builtin_nodes.h"
#include "fakequant/layers/model/detail/model_text.h"

namespace fq::detail {
namespace {

using Strings = std::vector<std::string>;

/// The nodes of every block of a transformer.
class Blocks {
 public:
  Blocks(BuiltinOptions options, std::int64_t width, std::int64_t heads, NodeOptions more)
      : layers_(options.integer("layers", 4, 1, 1000)),
        width_(options.integer("width", width)),
        bias_(options.on("bias", true)),
        gated_(options.choice("feed_forward", {"gelu", "swiglu"}) == "swiglu"),
        norm_(options.choice("norm", {"layer_norm", "rms_norm"})),
        dropout_(options.share("dropout")) {
    // SwiGLU has three matrices instead of two: 8/3 of the width keeps the number of parameters (Shazeer
    // 2020), rounded up to ggml's blocks of 32.
    hidden_ = options.integer("hidden", gated_ ? (8 * width_ / 3 + 31) / 32 * 32 : 4 * width_);
    const std::int64_t own = options.integer("heads", heads);
    attention_["heads"] = own;
    if (const auto shared = options.integer("kv_heads", own); shared != own) attention_["kv_heads"] = shared;
    // Options are written only where they differ from the default, so that files stay short.
    attention_.update(more);
    if (!bias_) attention_["bias"] = false;
    if (const double share = options.share("attention_dropout"); share > 0) attention_["dropout"] = share;
  }

  [[nodiscard]] std::int64_t width() const noexcept { return width_; }

  /// Returns the option names of blocks and `more`.
  [[nodiscard]] static Strings options(const Strings& more) {
    Strings all{"layers", "width",        "heads", "kv_heads", "hidden", "dropout", "attention_dropout",
                "norm",   "feed_forward", "bias"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  std::string norm(BuiltinNodes& nodes, const std::string& name, const Strings& inputs = {}) const {
    return nodes.add(name, norm_.c_str(), {}, inputs);
  }
  /// Adds dropout after the last node, if the model has dropout.
  std::string dropped(BuiltinNodes& nodes, const std::string& last, const std::string& name) const {
    return dropout_ > 0 ? nodes.add(name, "dropout", {{"p", dropout_}}) : last;
  }

  /// Adds the blocks. Each half is x + f(norm(x)), or with `norm_behind` norm(x + f(x)).
  std::string add(BuiltinNodes& nodes, std::string x, bool norm_behind) const {
    for (std::int64_t i = 1; i <= layers_; ++i) {
      const std::string name = fmt::format("block{}", i);
      for (const bool second : {false, true}) {
        // The first half of a block is attention, the second the feed-forward network.
        const std::string number = second ? "2" : "1", before = x;
        if (!norm_behind) x = norm(nodes, name + "_norm" + number, second ? Strings() : Strings{x});
        std::string y =
            second ? feed_forward(nodes, name, x) : nodes.add(name + "_attention", "attention", attention_);
        y = dropped(nodes, y, name + "_dropout" + number);
        x = nodes.add(name + "_add" + number, "add", {}, {y, before});
        if (norm_behind) x = norm(nodes, name + "_norm" + number);
      }
    }
    return x;
  }

 private:
  std::string linear(BuiltinNodes& nodes, const std::string& name, std::int64_t features,
                     const Strings& inputs = {}) const {
    NodeOptions options{{"out_features", features}};
    if (!bias_) options["bias"] = false;
    return nodes.add(name, "linear", std::move(options), inputs);
  }

  std::string feed_forward(BuiltinNodes& nodes, const std::string& name, const std::string& x) const {
    if (gated_) {
      linear(nodes, name + "_gate", hidden_);
      const std::string gate = nodes.add(name + "_silu", "silu"),
                        up = linear(nodes, name + "_up", hidden_, {x});
      nodes.add(name + "_product", "multiply", {}, {gate, up});
      return linear(nodes, name + "_down", width_);
    }
    linear(nodes, name + "_fc1", hidden_);
    nodes.add(name + "_gelu", "gelu");
    return linear(nodes, name + "_fc2", width_);
  }

  std::int64_t layers_, width_, hidden_ = 0;
  bool bias_, gated_;
  std::string norm_;
  double dropout_;
  NodeOptions attention_;
};

// "rotary": true means the same as "positions": "rotary".
bool rotary(const BuiltinOptions& options) {
  return options.choice("positions", {"learned", "rotary"}) == "rotary" || options.on("rotary");
}

NodeOptions attention_of_gpt(const BuiltinOptions& options) {
  NodeOptions out{{"causal", true}};
  if (rotary(options)) out["rotary"] = true;
  return out;
}

NodeOptions context_options(const BuiltinOptions& options, std::int64_t fallback) {
  const auto context = options.integer("context", fallback, fallback > 0 ? 1 : 0);
  return context > 0 ? NodeOptions{{"context", context}} : NodeOptions();
}

/// Returns the option names.
std::vector<std::string> gpt_options() {
  return Blocks::options({"context", "vocabulary", "positions", "rotary", "tied"});
}

std::vector<std::string> vit_options() { return Blocks::options({"patch", "pool"}); }

std::vector<std::string> encoder_options() { return Blocks::options({"vocabulary", "context", "pool"}); }

/// Token ids to the next ids. A norm comes before each half of a block.
BuiltinNodes gpt_nodes(BuiltinOptions options) {
  const Blocks blocks(options, 128, 4, attention_of_gpt(options));
  NodeOption vocabulary = "classes";
  if (options.has("vocabulary")) vocabulary = options.integer("vocabulary", 1);
  BuiltinNodes nodes;
  std::string x = nodes.add("tokens", "embedding", {{"vocabulary", vocabulary}, {"width", blocks.width()}});
  if (!rotary(options)) x = nodes.add("positions", "positions", context_options(options, 256));
  x = blocks.add(nodes, blocks.dropped(nodes, x, "dropout"), false);
  blocks.norm(nodes, "norm");
  NodeOptions head{{"out_features", vocabulary}, {"bias", false}};
  if (options.on("tied")) head["weight_of"] = "tokens";
  nodes.add("head", "linear", std::move(head));
  // Losses expect [N, classes, ..].
  nodes.add("classes_first", "transpose", {{"axes", Shape{0, 2, 1}}});
  return nodes;
}

/// Patches of an image to its class. A norm comes before each half of a block.
BuiltinNodes vit_nodes(BuiltinOptions options) {
  const Blocks blocks(options, 64, 4, {});
  const auto patch = options.integer("patch", 4);
  const bool token = options.choice("pool", {"mean", "token"}) == "token";
  BuiltinNodes nodes;
  nodes.add("patches", "conv2d", {{"out_channels", blocks.width()}, {"kernel", patch}, {"stride", patch}});
  // [N, width, h, w] to [N, width, h * w], and tokens first: [N, h * w, width].
  nodes.add("row", "reshape", {{"shape", Shape{blocks.width(), -1}}});
  std::string x = nodes.add("tokens", "transpose", {{"axes", Shape{0, 2, 1}}});
  if (token) {
    nodes.add("class_token", "parameter", {{"shape", Shape{1, blocks.width()}}, {"repeat", true}});
    nodes.add("all_tokens", "concat", {{"axis", 1}}, {"class_token", x});
  }
  x = nodes.add("positions", "positions");
  blocks.add(nodes, blocks.dropped(nodes, x, "dropout"), false);
  blocks.norm(nodes, "norm");
  if (token)
    nodes.add("first", "slice", {{"axis", 1}, {"end", 1}});
  else
    nodes.add("mean", "mean", {{"axes", Shape{1}}});
  if (token) nodes.add("flatten", "flatten");
  nodes.linear("fc", "classes");
  return nodes;
}

/// Token ids to the class of the text. A norm comes after each half of a block.
BuiltinNodes encoder_nodes(BuiltinOptions options) {
  const Blocks blocks(options, 64, 4, {});
  const bool first = options.choice("pool", {"mean", "first"}) == "first";
  BuiltinNodes nodes;
  nodes.add("tokens", "embedding",
            {{"vocabulary", options.integer("vocabulary", 257)}, {"width", blocks.width()}});
  nodes.add("positions", "positions", context_options(options, 0));
  std::string x = blocks.norm(nodes, "norm");
  x = blocks.add(nodes, blocks.dropped(nodes, x, "dropout"), true);
  if (first) {
    nodes.add("first", "slice", {{"axis", 1}, {"end", 1}});
    nodes.add("flatten", "flatten");
  } else {
    nodes.add("mean", "mean", {{"axes", Shape{1}}});
  }
  nodes.linear("fc", "classes");
  return nodes;
}

}  // namespace
}  // namespace fq::detail

namespace fq {
namespace {

using detail::JsonValue;
using Nodes = detail::BuiltinNodes;
using Options = detail::BuiltinOptions;
using detail::kLargestWidth;

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
    // The first layer keeps the size of the input.
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

/// Adds two 3x3 convolutions and a shortcut. Returns the name of the output.
std::string residual_block(Nodes& nodes, const std::string& name, std::int64_t width, bool halve,
                           const std::string& input) {
  nodes.conv_bn(name + "_conv1", width, 3, halve ? 2 : 1, {input});
  nodes.add(name + "_relu1", "relu");
  const auto branch = nodes.conv_bn(name + "_conv2", width, 3, 1);
  // A projection (option B of He et al. 2015), which a change of size or width needs.
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

ModelNodes builtin_nodes(std::string_view name, const JsonValue* options) {
  const auto found = std::ranges::find(builtins(), name, &Builtin::name);
  FQ_CHECK(found != builtins().end(), "model", "there is no built-in model '{}'{}", name,
           did_you_mean(name, builtin_models()));
  if (options != nullptr) options->expect_keys(found->options, fmt::format("of {}", name));
  ModelNodes nodes = found->nodes(Options(options)).list();
  // Errors in built nodes name the model instead of a line of a file.
  for (auto& node : nodes) node.place = NodePlace(fmt::format("[{}] node '{}': ", name, node.name));
  return nodes;
}

ModelNodes builtin_nodes(std::string_view name, std::string_view options) {
  if (options.empty()) return builtin_nodes(name, nullptr);
  const JsonText text(options, fmt::format("options of {}", name));
  const JsonValue value(text);
  return builtin_nodes(name, &value);
}

}  // namespace detail

std::string builtin_model_text(std::string_view name, std::string_view options) {
  return detail::model_text(name, detail::builtin_nodes(name, options), true);
}

}  // namespace fq
