#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/model/detail/layer_registry.h"
#include "fakequant/layers/model/merge.h"
#include "fakequant/layers/modules/activation.h"
#include "fakequant/layers/modules/conv.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/layers/modules/norm.h"
#include "fakequant/layers/modules/recurrent.h"

namespace fq::detail {
namespace {

using Made = std::shared_ptr<Module>;
constexpr double kLargest = 1e30;
const std::vector<std::string> kConvPadModes{"zeros", "reflect", "replicate", "circular"};

ops::PadMode pad_mode(const std::string& name) {
  return static_cast<ops::PadMode>(std::ranges::find(kConvPadModes, name) - kConvPadModes.begin());
}

Made make_linear(const LayerOptions& o) {
  const auto in = o.inferred("in_features", -1), out = o.outputs("out_features");
  const bool bias = o.flag_or("bias", true);
  o.reserve({out, in});
  return std::make_shared<Linear>(in, out, bias);
}

/// One number an axis, or one for all of them.
template <std::size_t axes>
std::array<std::int64_t, axes> each(const LayerOptions& o, const std::string& name, std::int64_t fallback,
                                    std::int64_t low = 1) {
  const auto given = o.sizes(name, low);
  std::array<std::int64_t, axes> out{};
  out.fill(given.empty() ? fallback : given[0]);
  if (given.size() > 1 && given.size() != axes)
    o.fail(fmt::format("'{}' has {} sizes: give 1 or {}", name, given.size(), axes));
  if (given.size() > 1) std::ranges::copy(given, out.begin());
  return out;
}

struct ConvArguments {
  std::int64_t in, out;
  Shape kernel;
  ops::ConvOptions options;
  bool bias;
};

/// "same": as many outputs as inputs, where a size is odd one more behind than in front, as in PyTorch.
void pad_to_same(const LayerOptions& o, ConvArguments& a) {
  for (const auto stride : a.options.stride)
    if (stride != 1) o.fail("'padding' is \"same\", which needs a stride of 1: give sizes");
  for (std::size_t i = 0; i < a.kernel.size(); ++i) {
    const auto& dilation = a.options.dilation;
    const std::int64_t step = dilation.empty() ? 1 : dilation[dilation.size() == 1 ? 0 : i];
    const std::int64_t both = step * (a.kernel[i] - 1);
    a.options.padding.push_back(both / 2);
    a.options.padding_end.push_back(both - both / 2);
  }
}

void read_padding(const LayerOptions& o, ConvArguments& a) {
  a.options.padding_mode = pad_mode(o.choice_or("padding_mode", "zeros", kConvPadModes));
  if (!o.is_text("padding")) {
    a.options.padding = o.sizes("padding", 0);
    a.options.padding_end = o.sizes("padding_end", 0);
  } else if (o.has("padding_end")) {
    o.fail("'padding_end' is for a 'padding' of sizes");
  } else if (o.choice_or("padding", "valid", {"valid", "same"}) == "same") {
    pad_to_same(o, a);
  }
}

/// Reads the options that all convolutions share and reserves their parameters.
ConvArguments conv_arguments(const LayerOptions& o, std::size_t rank) {
  ConvArguments a{o.inferred("in_channels", 1),
                  o.outputs("out_channels"),
                  o.sizes("kernel"),
                  {},
                  o.flag_or("bias", true)};
  a.options.stride = o.sizes("stride");
  a.options.dilation = o.sizes("dilation");
  a.options.groups = o.integer_or("groups", 1);
  if (a.kernel.empty()) o.fail("the option 'kernel' is missing: give its size, or one an axis");
  for (const auto* sizes : {&a.kernel, &a.options.stride, &a.options.dilation})
    if (sizes->size() != 1 && sizes->size() != rank && !sizes->empty())
      o.fail(fmt::format("an option has {} sizes: give 1 or {}", sizes->size(), rank));
  a.kernel.resize(rank, a.kernel[0]);
  read_padding(o, a);
  Shape weight{a.out, a.in / std::min(a.in, a.options.groups)};
  weight.insert(weight.end(), a.kernel.begin(), a.kernel.end());
  o.reserve(weight);
  return a;
}

Made make_conv1d(const LayerOptions& o) {
  auto a = conv_arguments(o, 1);
  return std::make_shared<Conv1d>(a.in, a.out, a.kernel[0], std::move(a.options), a.bias);
}

template <class Layer, std::size_t rank>
Made make_conv(const LayerOptions& o) {
  auto a = conv_arguments(o, rank);
  return std::make_shared<Layer>(a.in, a.out, std::move(a.kernel), std::move(a.options), a.bias);
}

Made make_conv_transpose1d(const LayerOptions& o) {
  auto a = conv_arguments(o, 1);
  return std::make_shared<ConvTranspose1d>(a.in, a.out, a.kernel[0], std::move(a.options),
                                           o.integer_or("output_padding", 0, 0), a.bias);
}

template <class Layer, std::size_t rank>
Made make_conv_transpose(const LayerOptions& o) {
  auto a = conv_arguments(o, rank);
  return std::make_shared<Layer>(a.in, a.out, std::move(a.kernel), std::move(a.options),
                                 o.sizes("output_padding", 0), a.bias);
}

Made make_batch_norm(const LayerOptions& o) {
  const auto channels = o.inferred("channels", 1);
  o.reserve({channels, 4});
  return std::make_shared<BatchNorm>(channels, o.number_or("eps", 1e-5, 1e-12, 1),
                                     o.number_or("momentum", 0.1, 0, 1));
}

/// The shape of the last axes that a norm is over, one by default.
Shape last_axes(const LayerOptions& o) {
  const Shape& input = o.inputs().at(0);
  Shape shape = o.sizes("shape");
  if (shape.empty()) shape = {o.inferred("shape", -1)};
  if (shape.size() >= input.size() || !std::equal(shape.rbegin(), shape.rend(), input.rbegin()))
    o.fail(fmt::format("'shape' is {}, but the input is {}: give its last sizes", to_string(shape),
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
  if (shape.empty()) o.fail("the option 'shape' is missing: give the sizes after the batch");
  o.reserve(shape);
  return std::make_shared<Parameter>(std::move(shape), o.flag_or("trained", true),
                                     o.flag_or("repeat", false));
}

Made make_embedding(const LayerOptions& o) {
  const auto vocabulary = o.integer("vocabulary"), width = o.integer("width");
  o.reserve({vocabulary, width});
  return std::make_shared<Embedding>(vocabulary, width);
}

template <class Pool, std::size_t axes>
Pool pool(const LayerOptions& o) {
  if (!o.has("kernel")) o.fail("the option 'kernel' is missing: give the window's size, or one an axis");
  return {.kernel = each<axes>(o, "kernel", 1),
          .stride = each<axes>(o, "stride", 0),
          .padding = each<axes>(o, "padding", 0, 0),
          .count_include_pad = o.flag_or("count_include_pad", true),
          .padding_end = each<axes>(o, "padding_end", -1, 0),
          .ceil_mode = o.flag_or("ceil_mode", false),
          .dilation = each<axes>(o, "dilation", 1)};
}

std::size_t input_rank(const LayerOptions& o) { return o.inputs().at(0).size(); }

ops::Pool2d image_pool(const LayerOptions& o) {
  auto options = pool<ops::Pool2d, 2>(o);
  if (input_rank(o) != 3) return options;
  options.kernel[0] = options.stride[0] = options.dilation[0] = 1;  // a sequence is an image of height 1
  options.padding[0] = options.padding_end[0] = 0;
  return options;
}

Made make_max_pool_of(const LayerOptions& o) {
  if (input_rank(o) == 5) return make_max_pool3d(pool<ops::Pool3d, 3>(o));
  return make_max_pool(image_pool(o));
}

Made make_avg_pool_of(const LayerOptions& o) {
  if (input_rank(o) == 5) return std::make_shared<AvgPool3d>(pool<ops::Pool3d, 3>(o));
  return std::make_shared<AvgPool2d>(image_pool(o));
}

Made make_adaptive_avg_pool_of(const LayerOptions& o) {
  if (input_rank(o) == 5) return make_adaptive_avg_pool3d(each<3>(o, "size", 1));
  auto size = each<2>(o, "size", 1);
  if (input_rank(o) == 3) size[0] = 1;
  return make_adaptive_avg_pool(size);
}

int axis(const LayerOptions& o, const char* name, int fallback) {
  return static_cast<int>(o.integer_or(name, fallback, -8, 8));
}

Made make_gelu_of(const LayerOptions& o) {
  return make_gelu(o.choice_or("approximate", "none", {"none", "tanh"}) == "tanh");
}

Made make_clip_of(const LayerOptions& o) {
  return make_clip(o.number("low", -kLargest, kLargest), o.number("high", -kLargest, kLargest));
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

const std::vector<std::string> kConv{"in_channels", "out_channels", "kernel", "stride",
                                     "padding",     "dilation",     "groups", "bias"};
const std::vector<std::string> kRecurrent{"input_size", "hidden_size", "bidirectional", "layers", "dropout"};

}  // namespace

LayerRegistry standard_layer_types() {
  auto conv = kConv, transposed = kConv;
  conv.insert(conv.end(), {"padding_end", "padding_mode"});
  transposed.emplace_back("output_padding");
  auto with_nonlinearity = kRecurrent;
  with_nonlinearity.emplace_back("nonlinearity");
  LayerRegistry all{
      {"linear", {{"in_features", "out_features", "bias"}, make_linear}},
      {"conv1d", {conv, make_conv1d}},
      {"conv2d", {conv, make_conv<Conv2d, 2>}},
      {"conv3d", {conv, make_conv<Conv3d, 3>}},
      {"conv_transpose1d", {transposed, make_conv_transpose1d}},
      {"conv_transpose2d", {transposed, make_conv_transpose<ConvTranspose2d, 2>}},
      {"conv_transpose3d", {transposed, make_conv_transpose<ConvTranspose3d, 3>}},
      {"batch_norm", {{"channels", "eps", "momentum"}, make_batch_norm}},
      {"layer_norm", {{"shape", "eps"}, make_layer_norm}},
      {"rms_norm", {{"shape", "eps"}, make_rms_norm}},
      {"group_norm", {{"groups", "channels", "eps"}, make_group_norm}},
      {"instance_norm", {{"channels", "eps"}, make_instance_norm}},
      {"prelu", {{"per_channel", "channels"}, make_prelu}},
      {"lstm", {kRecurrent, make_lstm}},
      {"gru", {kRecurrent, make_gru}},
      {"rnn", {with_nonlinearity, make_rnn}},
      {"parameter", {{"shape", "trained", "repeat"}, make_parameter}},
      {"embedding", {{"vocabulary", "width"}, make_embedding}},
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
        [](const LayerOptions& o) { return make_leaky_relu(o.number_or("slope", 0.01, 0, kLargest)); }}},
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
      {"max_pool",
       {{"kernel", "stride", "padding", "padding_end", "ceil_mode", "dilation"}, make_max_pool_of}},
      {"avg_pool",
       {{"kernel", "stride", "padding", "padding_end", "ceil_mode", "count_include_pad"}, make_avg_pool_of}},
      {"adaptive_avg_pool", {{"size"}, make_adaptive_avg_pool_of}},
      {"global_avg_pool", {{}, without_options<GlobalAvgPool2d>}},
      {"add", {{}, without_options<Add>}},
      {"multiply", {{}, without_options<Multiply>}},
      {"concat",
       {{"axis"}, [](const LayerOptions& o) { return std::make_shared<Concat>(axis(o, "axis", 1)); }}},
  };
  all.merge(operator_layer_types());
  return all;
}

}  // namespace fq::detail
