#include "fakequant/layers/model/detail/layer_registry.h"
#include "fakequant/layers/model/merge.h"
#include "fakequant/layers/modules/activation.h"
#include "fakequant/layers/modules/dot_product_attention.h"

namespace fq::detail {
namespace {

using Made = std::shared_ptr<Module>;

int axis(const LayerOptions& o, const char* name, int fallback) {
  return static_cast<int>(o.integer_or(name, fallback, -8, 8));
}

Made make_gelu_of(const LayerOptions& o) {
  return make_gelu(o.choice_or("approximate", "none", {"none", "tanh"}) == "tanh");
}

Made make_clip_of(const LayerOptions& o) {
  return make_clip(o.number("low", -kLargestOption, kLargestOption),
                   o.number("high", -kLargestOption, kLargestOption));
}

Made make_reshape_of(const LayerOptions& o) {
  Shape shape = o.sizes("shape", -1);
  if (shape.empty()) o.fail("the option 'shape' is missing: give the sizes after the batch, one may be -1");
  return make_reshape(std::move(shape), o.flag_or("whole", false));
}

Made make_transpose_of(const LayerOptions& o) {
  const auto axes = o.sizes("axes", 0, 8);
  if (axes.empty()) o.fail("the option 'axes' is missing: give their order");
  return make_transpose({axes.begin(), axes.end()});
}

Made make_dot_product_attention(const LayerOptions& o) {
  ops::AttentionOptions options{.causal = o.flag_or("causal", false)};
  if (o.has("scale")) options.scale = o.number("scale", -kLargestOption, kLargestOption);
  return std::make_shared<DotProductAttention>(options);
}

template <class M>
Made without_options(const LayerOptions&) {
  return std::make_shared<M>();
}

LayerFactory function(Made (*make)()) {
  return [make](const LayerOptions&) { return make(); };
}

/// Of what a dropout drops.
double share(const LayerOptions& o) { return o.number_or("p", 0.5, 0, 0.999); }

Made make_drop_block_of(const LayerOptions& o) {
  const auto block = o.integer_or("block", 7);
  if (block % 2 == 0) o.fail("the option 'block' is even: use an odd number");
  return make_drop_block(share(o), block);
}

}  // namespace

LayerRegistry standard_layer_types() {
  LayerRegistry all{
      {"identity", {{}, function(make_identity)}},
      {"relu", {{}, function(make_relu)}},
      {"relu6", {{}, function(make_relu6)}},
      {"gelu", {{"approximate"}, make_gelu_of}},
      {"silu", {{}, function(make_silu)}},
      {"sigmoid", {{}, function(make_sigmoid)}},
      {"tanh", {{}, function(make_tanh)}},
      {"hard_sigmoid", {{}, function(make_hard_sigmoid)}},
      {"hard_swish", {{}, function(make_hard_swish)}},
      {"clip", {{"low", "high"}, make_clip_of}},
      {"leaky_relu",
       {{"slope"},
        [](const LayerOptions& o) {
          return make_leaky_relu(o.number_or("slope", 0.01, 0, kLargestOption));
        }}},
      {"softmax", {{"axis"}, [](const LayerOptions& o) { return make_softmax(axis(o, "axis", -1)); }}},
      {"log_softmax",
       {{"axis"}, [](const LayerOptions& o) { return make_log_softmax(axis(o, "axis", -1)); }}},
      {"dropout", {{"p"}, [](const LayerOptions& o) { return make_dropout(share(o)); }}},
      {"channel_dropout", {{"p"}, [](const LayerOptions& o) { return make_channel_dropout(share(o)); }}},
      {"drop_path", {{"p"}, [](const LayerOptions& o) { return make_drop_path(share(o)); }}},
      {"alpha_dropout",
       {{"p", "channels"},
        [](const LayerOptions& o) { return make_alpha_dropout(share(o), o.flag_or("channels", false)); }}},
      {"drop_block", {{"p", "block"}, make_drop_block_of}},
      {"flatten",
       {{"start_axis"}, [](const LayerOptions& o) { return make_flatten(axis(o, "start_axis", 1)); }}},
      {"reshape", {{"shape", "whole"}, make_reshape_of}},
      {"transpose", {{"axes"}, make_transpose_of}},
      {"scaled_dot_product_attention", {{"causal", "scale"}, make_dot_product_attention}},
      {"add", {{}, without_options<Add>}},
      {"multiply", {{}, without_options<Multiply>}},
      {"concat",
       {{"axis"}, [](const LayerOptions& o) { return std::make_shared<Concat>(axis(o, "axis", 1)); }}},
  };
  all.merge(weighted_layer_types());
  all.merge(window_layer_types());
  all.merge(operator_layer_types());
  return all;
}

}  // namespace fq::detail
