
#include "fakequant/export/onnx/reader/patterns/graph_view.h"

namespace fq::detail {
namespace {

/// Summands of the indices of a Gather: positions within a sample, and one offset for each sample.
struct Indices {
  std::vector<const Tensor*> fixed;
  const OnnxNode* samples = nullptr;  ///< Unsqueeze(Range * elements per sample)
};

bool collect(const GraphView& graph, const std::string& name, Indices& indices, int depth = 0) {
  if (const Tensor* constant = graph.constant(name)) {
    indices.fixed.push_back(constant);
    return true;
  }
  if (const auto* sum = graph.maker(name, "Add", 2); sum != nullptr && depth < 8)
    return collect(graph, sum->inputs[0], indices, depth + 1) &&
           collect(graph, sum->inputs[1], indices, depth + 1);
  const auto* unsqueeze = graph.maker(name, "Unsqueeze", 2);
  if (unsqueeze == nullptr || indices.samples != nullptr) return false;
  indices.samples = unsqueeze;
  return true;
}

/// Returns the shape of a sample if the indices are 0, 1, 2, .. within each sample, and samples are
/// consecutive.
std::optional<Shape> strided_shape(const GraphView& graph, const Indices& indices) {
  if (indices.samples == nullptr || indices.fixed.empty()) return std::nullopt;
  Shape shape;
  for (const Tensor* part : indices.fixed) {
    if (part->dtype() != DType::i64 || part->numel() > (std::int64_t{1} << 20)) return std::nullopt;
    shape = broadcast_shapes(shape, part->shape(), "import_onnx");
  }
  const auto axes = graph.integers(indices.samples->inputs[1]);
  const auto* product = graph.maker(indices.samples->inputs[0], "Mul", 2);
  const auto* range = product != nullptr ? graph.maker(product->inputs[0], "Range", 3) : nullptr;
  if (shape.empty() || shape[0] != 1 || range == nullptr || !axes || axes->size() + 1 != shape.size() ||
      (*axes)[0] != 1 || !graph.is_number(range->inputs[0], 0) || !graph.is_number(range->inputs[2], 1) ||
      graph.number(product->inputs[1]) != static_cast<double>(numel(shape)))
    return std::nullopt;
  // Adds the parts with broadcasting. An axis of size 1 contributes nothing to the position `at`.
  Tensor sum = Tensor::zeros(shape, DType::i64);
  for (std::int64_t i = 0; i < sum.numel(); ++i)
    for (const Tensor* part : indices.fixed) {
      std::int64_t at = 0, rest = i, step = 1;
      for (int axis = -1; axis >= -part->rank(); --axis) {
        const std::int64_t size = shape[shape.size() - static_cast<std::size_t>(-axis)];
        if (part->dim(axis) != 1) at += rest % size * step;
        step *= part->dim(axis);
        rest /= size;
      }
      sum.mutable_data<std::int64_t>()[i] += part->data<std::int64_t>()[at];
    }
  for (std::int64_t i = 0; i < sum.numel(); ++i)
    if (sum.data<std::int64_t>()[i] != i) return std::nullopt;
  return Shape(shape.begin() + 1, shape.end());
}

}  // namespace

std::optional<OnnxNode> find_strided(const GraphView& graph, const OnnxNode& last) {
  if (last.op != "Gather" || last.inputs.size() != 2) return std::nullopt;
  const auto* flat = graph.maker(last.inputs[0], "Reshape", 2);
  const auto to = flat != nullptr ? graph.integers(flat->inputs[1]) : std::nullopt;
  // as_strided of PyTorch: the elements of the flat tensor at computed positions.
  if (!to || *to != Shape{-1}) return std::nullopt;
  Indices indices;
  if (!collect(graph, last.inputs[1], indices)) return std::nullopt;
  const auto shape = strided_shape(graph, indices);
  if (!shape) return std::nullopt;
  OnnxNode node = pattern_node(last, "Strided", {flat->inputs[0]});
  node.attributes.emplace_back("shape", *shape);
  return node;
}

}  // namespace fq::detail
