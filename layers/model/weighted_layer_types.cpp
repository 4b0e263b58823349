#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/model/detail/layer_registry.h"
#include "fakequant/layers/modules/activation.h"
#include "fakequant/layers/modules/attention.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/layers/modules/norm.h"
#include "fakequant/layers/modules/recurrent.h"

namespace fq::detail {
namespace {

using Made = std::shared_ptr<Module>;

/// Makes a layer that shares the weight of an earlier layer, like the output layer of a language model that
/// shares the table of the embedding.
Made make_tied(const LayerOptions& o, std::int64_t in, std::int64_t out, bool bias) {
  const Variable weight = o.tied_weight("weight_of");
  if (weight.shape() != Shape{out, in})
    o.fail(fmt::format("the weight of '{}' is {}, a layer of {} to {} features requires {}",
                       o.text("weight_of"), to_string(weight.shape()), in, out, to_string(Shape{out, in})));
  // The shared weight was reserved by its own layer.
  if (bias) o.reserve({out});
  return std::make_shared<TiedLinear>(weight, bias);
}

Made make_linear(const LayerOptions& o) {
  const auto in = o.inferred("in_features", -1), out = o.outputs("out_features");
  const bool bias = o.flag_or("bias", true);
  if (o.has("weight_of")) return make_tied(o, in, out, bias);
  o.reserve({out, in});
  return std::make_shared<Linear>(in, out, bias);
}

Made make_batch_norm(const LayerOptions& o) {
  const auto channels = o.inferred("channels", 1);
  // Weight, bias, and the two running statistics.
  o.reserve({channels, 4});
  return std::make_shared<BatchNorm>(channels, o.number_or("eps", 1e-5, 1e-12, 1),
                                     o.number_or("momentum", 0.1, 0, 1));
}

/// Returns the shape of the last axes that a norm covers, by default one axis.
Shape last_axes(const LayerOptions& o) {
  const Shape& input = o.inputs().at(0);
  Shape shape = o.sizes("shape");
  if (shape.empty()) shape = {o.inferred("shape", -1)};
  if (shape.size() >= input.size() || !std::equal(shape.rbegin(), shape.rend(), input.rbegin()))
    o.fail(fmt::format("'shape' is {}, but the input is {}: use its last sizes", to_string(shape),
                       to_string(input)));
  return shape;
}

Made make_layer_norm(const LayerOptions& o) {
  Shape shape = last_axes(o);
  o.reserve(shape);
  o.reserve(shape);
  return std::make_shared<LayerNorm>(std::move(shape), o.number_or("eps", 1e-5, 1e-12, 1));
}

Made make_rms_norm(const LayerOptions& o) {
  Shape shape = last_axes(o);
  o.reserve(shape);
  return std::make_shared<RmsNorm>(std::move(shape), o.number_or("eps", 1e-5, 1e-12, 1));
}

// Each factory reserves the elements of its parameters before it allocates them.
Made make_group_norm(const LayerOptions& o) {
  const auto channels = o.inferred("channels", 1);
  o.reserve({channels, 2});
  return std::make_shared<GroupNorm>(o.integer("groups"), channels, o.number_or("eps", 1e-5, 1e-12, 1));
}

Made make_instance_norm(const LayerOptions& o) {
  const auto channels = o.inferred("channels", 1);
  o.reserve({channels, 2});
  return std::make_shared<GroupNorm>(channels, channels, o.number_or("eps", 1e-5, 1e-12, 1));
}

constexpr std::int64_t kMostLayers = 256;

Made make_recurrent(Recurrent::Kind kind, const LayerOptions& o) {
  RecurrentOptions options{.in = o.inferred("input_size", -1),
                           .hidden = o.integer("hidden_size"),
                           .bidirectional = o.flag_or("bidirectional", false),
                           .layers = o.integer_or("layers", 1, 1, kMostLayers),
                           .dropout = o.number_or("dropout", 0, 0, 1)};
  const std::int64_t ways = options.bidirectional ? 2 : 1, gates = kind == Recurrent::Kind::lstm  ? 4
                                                                   : kind == Recurrent::Kind::gru ? 3
                                                                                                  : 1;
  // Per gate and direction: rows of input and hidden weights, and two biases. Later layers read both
  // directions.
  o.reserve({gates * ways, options.hidden, options.in + options.hidden + 2});
  if (options.layers > 1)
    o.reserve({options.layers - 1, gates * ways, options.hidden, (ways + 1) * options.hidden + 2});
  return std::make_shared<Recurrent>(kind, options);
}

Made make_lstm(const LayerOptions& o) { return make_recurrent(Recurrent::Kind::lstm, o); }
Made make_gru(const LayerOptions& o) { return make_recurrent(Recurrent::Kind::gru, o); }
Made make_rnn(const LayerOptions& o) {
  const auto function = o.choice_or("nonlinearity", "tanh", {"tanh", "relu"});
  return make_recurrent(function == "relu" ? Recurrent::Kind::rnn_relu : Recurrent::Kind::rnn_tanh, o);
}

Made make_prelu(const LayerOptions& o) {
  const auto slopes = o.flag_or("per_channel", false) ? o.inferred("channels", 1) : std::int64_t{1};
  o.reserve({slopes});
  return std::make_shared<PRelu>(slopes);
}

Made make_parameter(const LayerOptions& o) {
  Shape shape = o.sizes("shape");
  if (shape.empty()) o.fail("the option 'shape' is missing: use the sizes after the batch");
  o.reserve(shape);
  return std::make_shared<Parameter>(std::move(shape), o.flag_or("trained", true),
                                     o.flag_or("repeat", false));
}

Made make_embedding(const LayerOptions& o) {
  const auto vocabulary = o.outputs("vocabulary"), width = o.integer("width");
  o.reserve({vocabulary, width});
  return std::make_shared<Embedding>(vocabulary, width);
}

// Defaults are the values of Llama 3.1 (low, high) and YaRN (fast, slow).
RotaryScaling read_rotary_scaling(const LayerOptions& o) {
  if (!o.has("rotary_scaling")) return {};
  const std::string kind = o.choice_or("rotary_scaling", "", rotary_scalings());
  return {.kind = rotary_scaling_kind(kind),
          .factor = o.number("rotary_factor", 1, 1e6),
          .context = o.integer_or("rotary_context", 0, 0),
          .low = o.number_or("rotary_low", 1, 1e-6, 1e6),
          .high = o.number_or("rotary_high", 4, 1e-6, 1e6),
          .fast = o.number_or("rotary_fast", 32, 1e-6, 1e6),
          .slow = o.number_or("rotary_slow", 1, 1e-6, 1e6),
          .whole_pairs = o.flag_or("rotary_whole_pairs", true),
          .magnitude = o.number_or("rotary_magnitude", 0, 0, 1e6)};
}

Made make_attention(const LayerOptions& o) {
  AttentionOptions options{.width = o.inferred("width", -1),
                           .heads = o.integer("heads"),
                           .kv_heads = o.integer_or("kv_heads", 0, 0),
                           .head_size = o.integer_or("head_size", 0, 0),
                           .memory_width = o.inputs().size() > 1 ? o.inputs()[1].back() : 0,
                           .causal = o.flag_or("causal", false),
                           .rotary = o.flag_or("rotary", false),
                           .bias = o.flag_or("bias", true),
                           .rotary_base = o.number_or("rotary_base", 10000, 1, 1e12),
                           .qk_norm = o.number_or("qk_norm", 0, 0, 1),
                           .dropout = o.number_or("dropout", 0, 0, 0.999)};
  options.rotary_scaling = read_rotary_scaling(o);
  if (o.has("out_bias")) options.out_bias = o.flag_or("out_bias", true);
  // Roughly the four projections with biases.
  const std::int64_t inner = options.head_size > 0 ? options.heads * options.head_size : options.width;
  o.reserve({4, inner, std::max(options.width, options.memory_width) + 1});
  return std::make_shared<Attention>(options);
}

Made make_positions(const LayerOptions& o) {
  // By default the table has the length of the input.
  const auto context = o.has("context") ? o.integer("context") : o.inferred("context", 1),
             width = o.inferred("width", -1);
  o.reserve({context, width});
  return std::make_shared<Positions>(context, width);
}

}  // namespace

LayerRegistry weighted_layer_types() {
  const std::vector<std::string> recurrent{"input_size", "hidden_size", "bidirectional", "layers", "dropout"};
  auto with_nonlinearity = recurrent;
  with_nonlinearity.emplace_back("nonlinearity");
  return {
      {"linear", {{"in_features", "out_features", "bias", "weight_of"}, make_linear}},
      {"batch_norm", {{"channels", "eps", "momentum"}, make_batch_norm}},
      {"layer_norm", {{"shape", "eps"}, make_layer_norm}},
      {"rms_norm", {{"shape", "eps"}, make_rms_norm}},
      {"group_norm", {{"groups", "channels", "eps"}, make_group_norm}},
      {"instance_norm", {{"channels", "eps"}, make_instance_norm}},
      {"prelu", {{"per_channel", "channels"}, make_prelu}},
      {"lstm", {recurrent, make_lstm}},
      {"gru", {recurrent, make_gru}},
      {"rnn", {with_nonlinearity, make_rnn}},
      {"parameter", {{"shape", "trained", "repeat"}, make_parameter}},
      {"embedding", {{"vocabulary", "width"}, make_embedding}},
      {"attention",
       {{"width",         "heads",          "kv_heads",           "head_size",
         "causal",        "rotary",         "rotary_base",        "rotary_scaling",
         "rotary_factor", "rotary_context", "rotary_low",         "rotary_high",
         "rotary_fast",   "rotary_slow",    "rotary_whole_pairs", "rotary_magnitude",
         "qk_norm",       "bias",           "out_bias",           "dropout"},
        make_attention}},
      {"positions", {{"context", "width"}, make_positions}},
  };
}

}  // namespace fq::detail
