#include <algorithm>

#include "fakequant/export/onnx/reader/node_reader.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail::onnx_ops {
namespace {

std::vector<std::int64_t> read_kernel(const OpImport& op, const Tensor& weight) {
  op.check(weight.rank() >= 3 && weight.rank() <= 5,
           "its weight is {}: convolutions along up to 3 axes are supported", weight.describe());
  std::vector<std::int64_t> kernel(weight.shape().begin() + 2, weight.shape().end());
  const auto given = op.integers("kernel_shape");
  op.check(given.empty() || given == kernel, "its attribute 'kernel_shape' is {}, but its weight is {}",
           to_string(given), weight.describe());
  return kernel;
}

/// Returns the groups. They must fit the weight and the input.
std::int64_t read_groups(const OpImport& op, const Tensor& weight, bool transposed) {
  const Shape& x = op.value().shape;
  op.check(static_cast<int>(x.size()) == weight.rank(), "its input has {} axes, its weight is {}", x.size(),
           weight.describe());
  const std::int64_t groups = op.integer("group", 1, 1, kLargestSize);
  const std::int64_t channels = transposed ? weight.dim(0) : weight.dim(1) * groups;
  op.check(channels == x[1] && weight.dim(0) % groups == 0,
           "its input has {} channels, its weight is {} in {} groups", x[1], weight.describe(), groups);
  return groups;
}

/// Returns a weight with additional zero taps along an axis of the image.
Tensor padded(const Tensor& weight, int axis, std::int64_t front, std::int64_t back) {
  Shape shape = weight.shape();
  shape[static_cast<std::size_t>(axis)] += front + back;
  Tensor out = Tensor::zeros(shape);
  const AxisView from = axis_view(weight.shape(), axis), to = axis_view(shape, axis);
  const auto* source = weight.data<float>();
  auto* target = out.mutable_data<float>();
  for (std::int64_t o = 0; o < from.outer; ++o)
    std::copy_n(source + o * from.size * from.inner, from.size * from.inner,
                target + (o * to.size + front) * to.inner);
  return out;
}

/// Makes the pads of both sides equal, as layers require, by zero taps on one side of the kernel.
Tensor equalize_pads(const OpImport& op, Tensor weight, Window& window) {
  for (std::size_t i = 0; i < window.kernel.size(); ++i) {
    auto &before = window.before[i], &after = window.after[i];
    const std::int64_t more = std::abs(before - after);
    if (more == 0) continue;
    // A tap covers `dilation` pixels. Many zero taps would cost more than a pad layer.
    const std::int64_t taps = more / window.dilation[i];
    if (more % window.dilation[i] != 0 || taps > window.kernel[i]) continue;
    weight = padded(weight, static_cast<int>(i) + 2, before < after ? taps : 0, before < after ? 0 : taps);
    window.kernel[i] += taps;
    before = after = std::max(before, after);
  }
  if (weight.shape() != op.weight(1).shape()) op.recognise("unequal pads");
  return weight;
}

NodeOptions conv_options(const Window& window, std::int64_t out_channels, std::int64_t groups, bool bias) {
  const auto all = [](const std::vector<std::int64_t>& sizes, std::int64_t value) {
    return std::ranges::all_of(sizes, [=](std::int64_t size) { return size == value; });
  };
  NodeOptions options{{"out_channels", out_channels}, {"kernel", one_or_list(window.kernel)}};
  if (!all(window.stride, 1)) options["stride"] = one_or_list(window.stride);
  if (!all(window.before, 0)) options["padding"] = one_or_list(window.before);
  if (!all(window.dilation, 1)) options["dilation"] = one_or_list(window.dilation);
  if (groups != 1) options["groups"] = groups;
  if (!bias) options["bias"] = false;
  return options;
}

std::vector<LayerValue> conv_parameters(const OpImport& op, const Tensor& weight, std::int64_t out_channels) {
  std::vector<LayerValue> values{{"parameters", "weight", weight}};
  if (!op.has_input(2)) return values;
  const Tensor bias = op.weight(2);
  op.check(bias.shape() == Shape{out_channels},
           "its bias is {}: one number for each of {} channels is needed", bias.describe(), out_channels);
  values.push_back({"parameters", "bias", bias});
  return values;
}

/// Moves the remaining unequal pads into a pad layer before the convolution.
ImportValue padded_image(const OpImport& op, const ImportValue& x, Window& window) {
  if (window.equal_pads()) return x;
  for (const auto* pads : {&window.before, &window.after})
    for (const auto size : *pads)
      op.check(size <= kLargestPad, "it pads by {}: up to {} are supported", size, kLargestPad);
  op.recognise("unequal pads");
  const auto y = op.layer("pad", {{"before", window.before}, {"after", window.after}}, {x}, {}, "pad");
  window.before = window.after = std::vector<std::int64_t>(window.kernel.size(), 0);
  return y;
}

void check_pads_are_given(const OpImport& op) {
  const auto mode = op.text("auto_pad", "NOTSET");
  op.check(!op.has("output_shape") && (mode == "NOTSET" || mode == "VALID"),
           "its output size is given: use 'pads' instead of 'output_shape' and 'auto_pad'");
}

/// Removes the elements that unequal pads cut off.
ImportValue cropped(const OpImport& op, const ImportValue& y, const Window& given) {
  std::vector<std::int64_t> before, after;
  for (std::size_t i = 0; i < given.before.size(); ++i) {
    const std::int64_t both = std::min(given.before[i], given.after[i]);
    before.push_back(both - given.before[i]);
    after.push_back(both - given.after[i]);
  }
  return op.layer("pad", {{"before", before}, {"after", after}}, {y});
}

std::string layer_type(const char* what, std::size_t axes) { return fmt::format("{}{}d", what, axes); }

}  // namespace

ImportValue conv(const OpImport& op) {
  const ImportValue& x = op.value();
  Tensor weight = op.weight(1);
  const auto kernel = read_kernel(op, weight);
  const auto groups = read_groups(op, weight, false);
  Window window = read_window(op, kernel, {x.shape.begin() + 2, x.shape.end()});
  weight = equalize_pads(op, weight, window);
  const ImportValue image = padded_image(op, x, window);
  return op.layer(layer_type("conv", kernel.size()),
                  conv_options(window, weight.dim(0), groups, op.has_input(2)), {image},
                  conv_parameters(op, weight, weight.dim(0)));
}

ImportValue conv_transpose(const OpImport& op) {
  const ImportValue& x = op.value();
  const Tensor weight = op.weight(1);
  const auto kernel = read_kernel(op, weight);
  const auto groups = read_groups(op, weight, true);
  check_pads_are_given(op);
  Window window = read_window(op, kernel, {x.shape.begin() + 2, x.shape.end()});
  const Window given = window;
  for (std::size_t i = 0; i < kernel.size(); ++i)
    // The pads of a transposed convolution cut its output. The layer cuts the smaller pad on both sides, and
    // `cropped` the rest.
    window.before[i] = window.after[i] = std::min(given.before[i], given.after[i]);
  const std::int64_t channels = weight.dim(1) * groups;
  auto options = conv_options(window, channels, groups, op.has_input(2));
  const auto more = op.sizes("output_padding", kernel.size(), 0, 0);
  if (more != Shape(kernel.size(), 0)) options["output_padding"] = one_or_list(more);
  const std::string type = layer_type("conv_transpose", kernel.size());
  if (given.equal_pads()) return op.layer(type, options, {x}, conv_parameters(op, weight, channels));
  op.recognise("unequal pads");
  const auto y = op.layer(type, options, {x}, conv_parameters(op, weight, channels), "conv");
  return cropped(op, y, given);
}

}  // namespace fq::detail::onnx_ops
