#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/export/onnx/reader/operators.h"
#include "fakequant/export/onnx/reader/window.h"

namespace fq::detail::onnx_ops {
namespace {

using nlohmann::ordered_json;

std::vector<std::int64_t> kernel_of(const OpImport& op, const Tensor& weight, int most_axes) {
  op.check(weight.rank() >= 3 && weight.rank() - 2 <= most_axes,
           "its weight is {}: convolutions along up to {} axes are supported", weight.describe(), most_axes);
  std::vector<std::int64_t> kernel(weight.shape().begin() + 2, weight.shape().end());
  const auto given = op.integers("kernel_shape");
  op.check(given.empty() || given == kernel, "its attribute 'kernel_shape' is {}, but its weight is {}",
           to_string(given), weight.describe());
  return kernel;
}

/// The groups, when they fit weight, input and one another.
std::int64_t groups_of(const OpImport& op, const Tensor& weight, bool transposed) {
  const Shape& x = op.value().shape;
  op.check(static_cast<int>(x.size()) == weight.rank(), "its input has {} axes, its weight is {}", x.size(),
           weight.describe());
  const std::int64_t groups = op.integer("group", 1, 1, kLargestSize);
  const std::int64_t channels = transposed ? weight.dim(0) : weight.dim(1) * groups;
  op.check(channels == x[1] && weight.dim(0) % groups == 0,
           "its input has {} channels, its weight is {} in {} groups", x[1], weight.describe(), groups);
  return groups;
}

/// A weight with more taps, of zeros, along an axis of the image.
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

/// Layers have the same pads on both sides: a kernel with taps of zeros on one side gives the same numbers.
Tensor with_equal_pads(const OpImport& op, Tensor weight, Window& window) {
  for (std::size_t i = 0; i < window.kernel.size(); ++i) {
    auto &before = window.before[i], &after = window.after[i];
    const std::int64_t more = std::abs(before - after);
    if (more == 0) continue;
    const std::int64_t taps = more / window.dilation[i];
    op.check(more % window.dilation[i] == 0 && taps <= window.kernel[i],
             "its pads are {} before and {} after the image: they must be equal", before, after);
    weight = padded(weight, static_cast<int>(i) + 2, before < after ? taps : 0, before < after ? 0 : taps);
    window.kernel[i] += taps;
    before = after = std::max(before, after);
  }
  if (weight.shape() != op.weight(1).shape()) op.recognise("unequal pads");
  return weight;
}

ordered_json options_of(const Window& window, std::int64_t out_channels, std::int64_t groups, bool bias) {
  const auto all = [](const std::vector<std::int64_t>& sizes, std::int64_t value) {
    return std::ranges::all_of(sizes, [=](std::int64_t size) { return size == value; });
  };
  ordered_json options{{"out_channels", out_channels}, {"kernel", one_or_list(window.kernel)}};
  if (!all(window.stride, 1)) options["stride"] = one_or_list(window.stride);
  if (!all(window.before, 0)) options["padding"] = one_or_list(window.before);
  if (!all(window.dilation, 1)) options["dilation"] = one_or_list(window.dilation);
  if (groups != 1) options["groups"] = groups;
  if (!bias) options["bias"] = false;
  return options;
}

std::vector<LayerValue> values_of(const OpImport& op, const Tensor& weight, std::int64_t out_channels) {
  std::vector<LayerValue> values{{"parameters", "weight", weight}};
  if (!op.has_input(2)) return values;
  const Tensor bias = op.weight(2);
  op.check(bias.shape() == Shape{out_channels},
           "its bias is {}: one number for each of {} channels is needed", bias.describe(), out_channels);
  values.push_back({"parameters", "bias", bias});
  return values;
}

}  // namespace

ImportValue conv(const OpImport& op) {
  const ImportValue& x = op.value();
  Tensor weight = op.weight(1);
  const auto kernel = kernel_of(op, weight, 2);
  const auto groups = groups_of(op, weight, false);
  Window window = read_window(op, kernel, {x.shape.begin() + 2, x.shape.end()});
  weight = with_equal_pads(op, weight, window);
  return op.layer(kernel.size() == 1 ? "conv1d" : "conv2d",
                  options_of(window, weight.dim(0), groups, op.has_input(2)), {x},
                  values_of(op, weight, weight.dim(0)));
}

ImportValue conv_transpose(const OpImport& op) {
  const ImportValue& x = op.value();
  const Tensor weight = op.weight(1);
  const auto kernel = kernel_of(op, weight, 2);
  op.check(kernel.size() == 2, "its weight is {}: transposed convolutions of images are supported",
           weight.describe());
  const auto groups = groups_of(op, weight, true);
  const auto mode = op.text("auto_pad", "NOTSET");
  op.check(!op.has("output_shape") && (mode == "NOTSET" || mode == "VALID"),
           "its output's size is given: pads are needed in place of 'output_shape' and 'auto_pad'");
  const Window window = read_window(op, kernel, {x.shape.begin() + 2, x.shape.end()});
  op.check(window.equal_pads(), "its pads before and after the image differ: they must be equal");
  const std::int64_t channels = weight.dim(1) * groups;
  auto options = options_of(window, channels, groups, op.has_input(2));
  const auto more = op.sizes("output_padding", 2, 0, 0);
  if (more != Shape{0, 0}) options["output_padding"] = one_or_list(more);
  return op.layer("conv_transpose2d", options, {x}, values_of(op, weight, channels));
}

}  // namespace fq::detail::onnx_ops
