#include "fakequant/layers/model/detail/transformer_nodes.h"

#include <fmt/format.h>

namespace fq::detail {
namespace {

using nlohmann::ordered_json;
using Strings = std::vector<std::string>;

/// What every block of a transformer has.
class Blocks {
 public:
  Blocks(BuiltinOptions options, std::int64_t width, std::int64_t heads, ordered_json more)
      : layers_(options.integer("layers", 4, 1, 1000)),
        width_(options.integer("width", width)),
        bias_(options.on("bias", true)),
        gated_(options.choice("feed_forward", {"gelu", "swiglu"}) == "swiglu"),
        norm_(options.choice("norm", {"layer_norm", "rms_norm"})),
        dropout_(options.share("dropout")) {
    hidden_ = options.integer("hidden", gated_ ? (8 * width_ / 3 + 31) / 32 * 32 : 4 * width_);
    attention_["heads"] = options.integer("heads", heads);
    if (const auto shared = options.integer("kv_heads", attention_["heads"]); shared != attention_["heads"])
      attention_["kv_heads"] = shared;
    attention_.update(more);
    if (!bias_) attention_["bias"] = false;
    if (const double share = options.share("attention_dropout"); share > 0) attention_["dropout"] = share;
  }

  [[nodiscard]] std::int64_t width() const noexcept { return width_; }

  /// The names of their options.
  [[nodiscard]] static Strings options(const Strings& more) {
    Strings all{"layers", "width",        "heads", "kv_heads", "hidden", "dropout", "attention_dropout",
                "norm",   "feed_forward", "bias"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  std::string norm(BuiltinNodes& nodes, const std::string& name, const Strings& inputs = {}) const {
    return nodes.add(name, norm_.c_str(), {}, inputs);
  }
  /// The last node with dropout behind it, where there is one.
  std::string dropped(BuiltinNodes& nodes, const std::string& last, const std::string& name) const {
    return dropout_ > 0 ? nodes.add(name, "dropout", {{"p", dropout_}}) : last;
  }

  /// Each half is x + f(norm(x)), or with `norm_behind` norm(x + f(x)).
  std::string add(BuiltinNodes& nodes, std::string x, bool norm_behind) const {
    for (std::int64_t i = 1; i <= layers_; ++i) {
      const std::string name = fmt::format("block{}", i);
      for (const bool second : {false, true}) {
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
    ordered_json options{{"out_features", features}};
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
  ordered_json attention_;
};

bool rotary(const BuiltinOptions& options) {
  return options.choice("positions", {"learned", "rotary"}) == "rotary" || options.on("rotary");
}

ordered_json attention_of_gpt(const BuiltinOptions& options) {
  ordered_json out{{"causal", true}};
  if (rotary(options)) out["rotary"] = true;
  return out;
}

ordered_json context_of(const BuiltinOptions& options, std::int64_t fallback) {
  const auto context = options.integer("context", fallback, fallback > 0 ? 1 : 0);
  return context > 0 ? ordered_json{{"context", context}} : ordered_json();
}

}  // namespace

std::vector<std::string> gpt_options() {
  return Blocks::options({"context", "vocabulary", "positions", "rotary", "tied"});
}

std::vector<std::string> vit_options() { return Blocks::options({"patch", "pool"}); }

std::vector<std::string> encoder_options() { return Blocks::options({"vocabulary", "context", "pool"}); }

BuiltinNodes gpt_nodes(BuiltinOptions options) {
  const Blocks blocks(options, 128, 4, attention_of_gpt(options));
  ordered_json vocabulary = "classes";
  if (options.has("vocabulary")) vocabulary = options.integer("vocabulary", 1);
  BuiltinNodes nodes;
  std::string x = nodes.add("tokens", "embedding", {{"vocabulary", vocabulary}, {"width", blocks.width()}});
  if (!rotary(options)) x = nodes.add("positions", "positions", context_of(options, 256));
  x = blocks.add(nodes, blocks.dropped(nodes, x, "dropout"), false);
  blocks.norm(nodes, "norm");
  ordered_json head{{"out_features", vocabulary}, {"bias", false}};
  if (options.on("tied")) head["weight_of"] = "tokens";
  nodes.add("head", "linear", std::move(head));
  nodes.add("classes_first", "transpose", {{"axes", {0, 2, 1}}});
  return nodes;
}

BuiltinNodes vit_nodes(BuiltinOptions options) {
  const Blocks blocks(options, 64, 4, ordered_json::object());
  const auto patch = options.integer("patch", 4);
  const bool token = options.choice("pool", {"mean", "token"}) == "token";
  BuiltinNodes nodes;
  nodes.add("patches", "conv2d", {{"out_channels", blocks.width()}, {"kernel", patch}, {"stride", patch}});
  nodes.add("row", "reshape", {{"shape", {blocks.width(), -1}}});
  std::string x = nodes.add("tokens", "transpose", {{"axes", {0, 2, 1}}});
  if (token) {
    nodes.add("class_token", "parameter", {{"shape", {1, blocks.width()}}, {"repeat", true}});
    nodes.add("all_tokens", "concat", {{"axis", 1}}, {"class_token", x});
  }
  x = nodes.add("positions", "positions");
  blocks.add(nodes, blocks.dropped(nodes, x, "dropout"), false);
  blocks.norm(nodes, "norm");
  if (token)
    nodes.add("first", "slice", {{"axis", 1}, {"end", 1}});
  else
    nodes.add("mean", "mean", {{"axes", {1}}});
  if (token) nodes.add("flatten", "flatten");
  nodes.linear("fc", "classes");
  return nodes;
}

BuiltinNodes encoder_nodes(BuiltinOptions options) {
  const Blocks blocks(options, 64, 4, ordered_json::object());
  const bool first = options.choice("pool", {"mean", "first"}) == "first";
  BuiltinNodes nodes;
  nodes.add("tokens", "embedding",
            {{"vocabulary", options.integer("vocabulary", 257)}, {"width", blocks.width()}});
  nodes.add("positions", "positions", context_of(options, 0));
  std::string x = blocks.norm(nodes, "norm");
  x = blocks.add(nodes, blocks.dropped(nodes, x, "dropout"), true);
  if (first) {
    nodes.add("first", "slice", {{"axis", 1}, {"end", 1}});
    nodes.add("flatten", "flatten");
  } else {
    nodes.add("mean", "mean", {{"axes", {1}}});
  }
  nodes.linear("fc", "classes");
  return nodes;
}

}  // namespace fq::detail
