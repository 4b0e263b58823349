#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/model/detail/layer_registry.h"
#include "fakequant/layers/model/merge.h"
#include "fakequant/layers/modules/activation.h"
#include "fakequant/layers/modules/conv.h"

namespace fq::detail {
namespace {

using Made = std::shared_ptr<Module>;
const std::vector<std::string> kConvPadModes{"zeros", "reflect", "replicate", "circular"};

// The list has PyTorch's names in the order of PadMode. choice_or has checked the name.
ops::PadMode pad_mode(const std::string& name) {
  return static_cast<ops::PadMode>(std::ranges::find(kConvPadModes, name) - kConvPadModes.begin());
}

/// Reads one integer per axis. A single integer applies to all axes.
template <std::size_t axes>
std::array<std::int64_t, axes> each(const LayerOptions& o, const std::string& name, std::int64_t fallback,
                                    std::int64_t low = 1) {
  const auto given = o.sizes(name, low);
  std::array<std::int64_t, axes> out{};
  out.fill(given.empty() ? fallback : given[0]);
  if (given.size() > 1 && given.size() != axes)
    o.fail(fmt::format("'{}' has {} sizes: use 1 or {}", name, given.size(), axes));
  if (given.size() > 1) std::ranges::copy(given, out.begin());
  return out;
}

struct ConvArguments {
  std::int64_t in, out;
  Shape kernel;
  ops::ConvOptions options;
  bool bias;
};

/// Pads for "same": the output has the size of the input. If the total padding is odd, the end gets one more
/// element, as in PyTorch.
void pad_to_same(const LayerOptions& o, ConvArguments& a) {
  for (const auto stride : a.options.stride)
    if (stride != 1) o.fail("'padding' is \"same\", which needs a stride of 1: use sizes");
  for (std::size_t i = 0; i < a.kernel.size(); ++i) {
    const auto& dilation = a.options.dilation;
    const std::int64_t step = dilation.empty() ? 1 : dilation[dilation.size() == 1 ? 0 : i];
    // The receptive field has step * (kernel - 1) + 1 elements.
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
  if (a.kernel.empty()) o.fail("the option 'kernel' is missing: use its size, or one an axis");
  for (const auto* sizes : {&a.kernel, &a.options.stride, &a.options.dilation})
    if (sizes->size() != 1 && sizes->size() != rank && !sizes->empty())
      o.fail(fmt::format("an option has {} sizes: use 1 or {}", sizes->size(), rank));
  a.kernel.resize(rank, a.kernel[0]);
  read_padding(o, a);
  // Reserved before the layer allocates its weight, so that a model file cannot exhaust the memory.
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

// A stride of 0 means the size of the kernel, a padding_end of -1 the size of padding.
template <class Pool, std::size_t axes>
Pool pool(const LayerOptions& o) {
  if (!o.has("kernel")) o.fail("the option 'kernel' is missing: use the window's size, or one an axis");
  return {.kernel = each<axes>(o, "kernel", 1),
          .stride = each<axes>(o, "stride", 0),
          .padding = each<axes>(o, "padding", 0, 0),
          .count_include_pad = o.flag_or("count_include_pad", true),
          .padding_end = each<axes>(o, "padding_end", -1, 0),
          .ceil_mode = o.flag_or("ceil_mode", false),
          .dilation = each<axes>(o, "dilation", 1)};
}

// 3 for sequences [N, C, L], 4 for images and 5 for volumes.
std::size_t input_rank(const LayerOptions& o) { return o.inputs().at(0).size(); }

ops::Pool2d image_pool(const LayerOptions& o) {
  auto options = pool<ops::Pool2d, 2>(o);
  if (input_rank(o) != 3) return options;
  options.kernel[0] = options.stride[0] = options.dilation[0] = 1;  // a sequence is an image of height 1
  options.padding[0] = options.padding_end[0] = 0;
  return options;
}

Made build_max_pool(const LayerOptions& o) {
  if (input_rank(o) == 5) return make_max_pool3d(pool<ops::Pool3d, 3>(o));
  return make_max_pool(image_pool(o));
}

Made build_avg_pool(const LayerOptions& o) {
  if (input_rank(o) == 5) return std::make_shared<AvgPool3d>(pool<ops::Pool3d, 3>(o));
  return std::make_shared<AvgPool2d>(image_pool(o));
}

Made build_adaptive_avg_pool(const LayerOptions& o) {
  if (input_rank(o) == 5) return make_adaptive_avg_pool3d(each<3>(o, "size", 1));
  auto size = each<2>(o, "size", 1);
  if (input_rank(o) == 3) size[0] = 1;
  return make_adaptive_avg_pool(size);
}

}  // namespace

LayerRegistry window_layer_types() {
  const std::vector<std::string> sizes{"in_channels", "out_channels", "kernel", "stride",
                                       "padding",     "dilation",     "groups", "bias"};
  // Transposed convolutions have neither a padding at the end nor padding modes.
  auto conv = sizes, transposed = sizes;
  conv.insert(conv.end(), {"padding_end", "padding_mode"});
  transposed.emplace_back("output_padding");
  return {
      {"conv1d", {conv, make_conv1d}},
      {"conv2d", {conv, make_conv<Conv2d, 2>}},
      {"conv3d", {conv, make_conv<Conv3d, 3>}},
      {"conv_transpose1d", {transposed, make_conv_transpose1d}},
      {"conv_transpose2d", {transposed, make_conv_transpose<ConvTranspose2d, 2>}},
      {"conv_transpose3d", {transposed, make_conv_transpose<ConvTranspose3d, 3>}},
      {"max_pool", {{"kernel", "stride", "padding", "padding_end", "ceil_mode", "dilation"}, build_max_pool}},
      {"avg_pool",
       {{"kernel", "stride", "padding", "padding_end", "ceil_mode", "count_include_pad"}, build_avg_pool}},
      {"adaptive_avg_pool", {{"size"}, build_adaptive_avg_pool}},
      {"global_avg_pool", {{}, [](const LayerOptions&) { return std::make_shared<GlobalAvgPool2d>(); }}},
  };
}

}  // namespace fq::detail
