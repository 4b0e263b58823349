#include "fakequant/export/onnx/reader/folding/fixed_values.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "fakequant/export/onnx/reader/folding/fold.h"
#include "fakequant/layers/model/detail/symbolic_batch.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kSmallGraph = std::int64_t{1} << 22;  // elements that every file may create

std::int64_t element_count(const OnnxModel& model) {
  std::int64_t count = 0;
  for (const auto& initializer : model.initializers) count += initializer.value.numel();
  return count;
}

/// Whether the node repeats a value for each sample. Layers do that instead.
bool is_of_samples(const OnnxNode& node, const std::vector<Tensor>& inputs) {
  const bool of_shape = node.op == "ConstantOfShape", expands = node.op == "Expand" || node.op == "Tile";
  // Index of the input with the target shape or the repeats.
  const std::size_t at = of_shape ? 0 : 1;
  if ((!of_shape && !expands) || inputs.size() <= at || inputs[at].rank() > 1) return false;
  return batch_axis(inputs[at].to(DType::i64).to_vector<std::int64_t>()) >= 0;
}

/// Whether the tensor looks trained, rather than like a mask, a count or a constant.
bool is_learnable(const Tensor& value) {
  if (!is_floating(value.dtype()) || value.numel() < 2) return false;
  return std::ranges::all_of(value.to(DType::f32).to_vector<float>(),
                             [](float v) { return std::isfinite(v) && std::abs(v) < 1e4F; });
}

}  // namespace

// The limit grows with the file, so a small file cannot make the importer allocate much memory.
std::int64_t element_limit(const OnnxModel& model) { return 4 * element_count(model) + kSmallGraph; }

FixedValues::FixedValues(const OnnxModel& model) : budget_{element_limit(model)} {
  for (const auto& initializer : model.initializers)
    add(initializer.name, initializer.value, is_learnable(initializer.value));
}

bool FixedValues::fold_node(const OnnxNode& node) {
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Tensor* value = find(node.inputs[i]);
    if (value == nullptr && !node.inputs[i].empty()) return false;
    inputs.push_back(value == nullptr ? Tensor() : *value);
  }
  if (node.outputs.empty() || is_of_samples(node, inputs)) return false;
  // The value of a fixed input has a batch of 1, but its Shape must have the symbolic batch.
  if (const auto input = batch_shapes_.find(node.inputs.empty() ? "" : node.inputs[0]);
      node.op == "Shape" && input != batch_shapes_.end()) {
    add(node.outputs[0], shape_tensor(NodeReader(node), input->second), false);
    return true;
  }
  const bool learned = std::ranges::any_of(node.inputs, [&](const auto& name) { return is_learned(name); });
  if (node.op == "Split" && node.domain.empty()) {
    const NodeReader reader(node);
    const auto parts = fold_split({reader, inputs, budget_}, node.outputs.size());
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (!node.outputs[i].empty()) add(node.outputs[i], parts[i], learned);
    return true;
  }
  const auto value = fold(NodeReader(node), inputs, budget_);
  if (value) add(node.outputs[0], *value, learned && is_floating(value->dtype()));
  return value.has_value();
}

}  // namespace fq::detail
