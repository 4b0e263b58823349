#include <algorithm>

#include "fakequant/export/onnx/reader/folding/fold.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail::onnx_ops {
namespace {

/// Returns the first of the axes. They must be the last axes of the input.
int first_axis(const OpImport& op, int rank) {
  // ONNX has the first axis, a pattern the axes of its means.
  const auto given = op.has("axes") ? op.integers("axes") : Shape{op.integer("axis", -1, -8, 8)};
  const auto axes = normalized_axes(op, given, rank);
  op.check(!axes.empty(), "it has no axes");
  const int first = *std::ranges::min_element(axes);
  op.check(first >= 1, "it mixes samples: its first axis is {}", first);
  op.check(!op.has("axes") || static_cast<int>(axes.size()) == rank - first,
           "its axes are not the last ones");
  return first;
}

/// Returns a parameter of that shape. A missing input or a single number is repeated.
Tensor parameter(const OpImport& op, std::size_t i, double missing, const Shape& shape) {
  if (!op.has_input(i)) return Tensor::full(shape, missing);
  const Tensor given = op.weight(i);
  if (given.numel() == 1) return Tensor::full(shape, given.item());
  op.check(given.numel() == numel(shape), "its input {} is {}: {} is needed", i, given.describe(),
           to_string(shape));
  return given.reshape(shape);
}

/// Rejects training mode. Opset 14 has an attribute for it. Older opsets have more outputs instead.
void check_not_training(const OpImport& op) {
  const auto& outputs = op.node().outputs;
  const bool more =
      std::any_of(outputs.begin() + 1, outputs.end(), [](const auto& name) { return !name.empty(); });
  const bool training = op.integer("training_mode", 0, 0, 1) == 1 || (op.opset() < 14 && more);
  op.check(!training,
           "it is in training mode and normalizes by the statistics of the batch: export the network in "
           "evaluation mode, torch.onnx.export(model.eval(), ..)");
}

}  // namespace

ImportValue batch_norm(const OpImport& op) {
  const ImportValue& x = op.value();
  check_not_training(op);
  op.check(x.shape.size() >= 2 && x.shape.size() <= 5, "its input has {} axes", x.shape.size());
  std::vector<LayerValue> values{{"parameters", "weight", op.weight(1)},
                                 {"parameters", "bias", op.weight(2)},
                                 {"buffers", "running_mean", op.weight(3)},
                                 {"buffers", "running_var", op.weight(4)}};
  for (const auto& entry : values)
    op.check(entry.value.shape() == Shape{x.shape[1]},
             "its {} is {}: one number for each of {} channels is needed", entry.name, entry.value.describe(),
             x.shape[1]);
  op.check(op.integer("spatial", 1, 0, 1) == 1, "it has statistics for each pixel: 'spatial' is 0");
  NodeOptions options;
  // In ONNX, momentum weights the old statistics, in PyTorch the new statistics.
  const double eps = op.number("epsilon", 1e-5), momentum = op.number("momentum", 0.9);
  if (eps != 1e-5) options["eps"] = eps;
  if (momentum != 0.9) options["momentum"] = shortest(static_cast<float>(1 - momentum));
  return op.layer("batch_norm", options, {x}, values);
}

ImportValue layer_norm(const OpImport& op) {
  const ImportValue& x = op.value();
  const int first = first_axis(op, static_cast<int>(x.shape.size()));
  const Shape shape(x.shape.begin() + first, x.shape.end());
  const std::int64_t given = op.has_input(1) ? op.weight(1).numel() : 1;
  // ONNX lets the scale broadcast. Layers have one scale per element of the normalized axes.
  op.check(op.node().domain == kPatternDomain || given == numel(shape),
           "its scale has {} elements, its axes have {}", given, numel(shape));
  op.check(numel(shape) <= std::max<std::int64_t>(given, 1 << 20),
           "it has {} elements without scales of their own", numel(shape));
  if (op.node().domain == kPatternDomain) op.recognise("layer norm");
  NodeOptions options;
  if (shape.size() > 1) options["shape"] = shape;
  const double eps = op.number("epsilon", 1e-5);
  if (eps != 1e-5) options["eps"] = eps;
  return op.layer("layer_norm", options, {x},
                  {{"parameters", "weight", parameter(op, 1, 1, shape)},
                   {"parameters", "bias", parameter(op, 2, 0, shape)}});
}

namespace {

std::vector<LayerValue> channel_parameters(const OpImport& op, std::int64_t channels) {
  return {{"parameters", "weight", parameter(op, 1, 1, {channels})},
          {"parameters", "bias", parameter(op, 2, 0, {channels})}};
}

NodeOptions epsilon(const OpImport& op) {
  const double eps = op.number("epsilon", 1e-5);
  return eps == 1e-5 ? NodeOptions() : NodeOptions{{"eps", eps}};
}

}  // namespace

ImportValue instance_norm(const OpImport& op) {
  const ImportValue& x = op.value();
  op.check(x.shape.size() >= 3, "its input has {} axes", x.shape.size());
  return op.layer("instance_norm", epsilon(op), {x}, channel_parameters(op, x.shape[1]));
}

ImportValue group_norm(const OpImport& op) {
  const ImportValue& x = op.value();
  // Opsets 18 to 20 have one scale per group.
  op.check(x.shape.size() >= 2 && op.opset() >= 21,
           "its version has a scale for each group, not for each channel");
  auto options = epsilon(op);
  options["groups"] = op.integer("num_groups", 1, 1, kLargestSize);
  return op.layer("group_norm", options, {x}, channel_parameters(op, x.shape[1]));
}

ImportValue rms_norm(const OpImport& op) {
  const ImportValue& x = op.value();
  const int first = first_axis(op, static_cast<int>(x.shape.size()));
  const Shape shape(x.shape.begin() + first, x.shape.end());
  auto options = epsilon(op);
  if (shape.size() > 1) options["shape"] = shape;
  return op.layer("rms_norm", options, {x}, {{"parameters", "weight", parameter(op, 1, 1, shape)}});
}

ImportValue local_response_norm(const OpImport& op) {
  NodeOptions options{{"size", op.integer("size", 1, 1, kLargestSize)}};
  if (const double alpha = op.number("alpha", 1e-4); alpha != 1e-4) options["alpha"] = alpha;
  if (const double beta = op.number("beta", 0.75); beta != 0.75) options["beta"] = beta;
  if (const double k = op.number("bias", 1); k != 1) options["k"] = k;
  return op.layer("local_response_norm", options, {op.value()});
}

}  // namespace fq::detail::onnx_ops
