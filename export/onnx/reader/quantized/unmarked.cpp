#include <algorithm>
#include <map>

#include "fakequant/core/detail/check.h"
#include "fakequant/export/onnx/reader/operators.h"
#include "fakequant/export/onnx/reader/quantized/placed_grids.h"

namespace fq::detail {
namespace {

constexpr std::string_view kMark = "on_grid_", kWeightsMark = "weights_on_grid_";

/// Returns the grid of a mark node, or -1 for other nodes.
int grid_of_mark(const ModelNode& node, std::string_view mark = kMark) {
  const auto at = node.name.rfind(mark);
  if (node.type != "identity" || at == std::string::npos) return -1;
  return std::stoi(node.name.substr(at + mark.size()));
}

}  // namespace

// A mark is an identity layer whose name ends in the index of its grid. It passes through the float import.
ImportValue onnx_ops::grid_mark(const OpImport& op) {
  const Shape& shape = op.value().shape;
  const std::int64_t rank = value_rank(op.value()), scales = op.integer("scales", 0, 0, kLargestSize);
  const std::int64_t given = op.integer("axis", 0, -8, 7), axis = given < 0 ? given + rank : given;
  const bool fits = scales == 0 || (axis >= 0 && axis < rank && shape[std::size_t(axis)] == scales);
  FQ_CHECK(fits, "import_onnx", "{}: it has {} scales along axis {} of {}: one for each element is needed",
           op.text("origin", ""), scales, given, batch_text(shape));
  const auto index = op.integer("index", 0, 0, kLargestSize);
  return op.layer("identity", {}, {op.value()}, {}, std::string(kMark) + std::to_string(index));
}

std::pair<ImportValue, int> onnx_ops::remove_mark(const OpImport& op, const ImportValue& x) {
  const ModelBuilder::Layer* layer = op.made(x.node);
  const int grid = layer == nullptr ? -1 : grid_of_mark(*layer);
  const ModelBuilder::Layer* behind = grid < 0 ? nullptr : op.made(layer->inputs.at(0));
  return behind == nullptr ? std::pair(x, -1) : std::pair(behind->output, grid);
}

ImportValue onnx_ops::mark_weights_grid(const OpImport& op, const ImportValue& y, int index) {
  return op.layer("identity", {}, {y}, {}, std::string(kWeightsMark) + std::to_string(index));
}

bool same_grid(const StoredGrid& a, const StoredGrid& b) {
  return a.format == b.format && bitwise_equal(a.scale, b.scale) && a.axis == b.axis;
}

UnmarkedNodes unmarked(const ModelNodes& nodes, const Unquantized& file) {
  // Readers of a mark read the value before it, and remember the grid.
  std::map<std::string, GridNode::Read> marks;
  const auto read = [&](const std::string& name) {
    const auto mark = marks.find(name);
    return mark == marks.end() ? GridNode::Read{name} : mark->second;
  };
  UnmarkedNodes out;
  std::string before = "input";
  for (const auto& node : nodes) {
    const std::string& name = node.name;
    GridNode own{name, {}};
    for (const auto& input : node.inputs) own.reads.push_back(read(input));
    if (node.inputs.empty()) own.reads.push_back(read(before));
    before = name;
    out.output = {name};
    if (const int grid = grid_of_mark(node, kWeightsMark); grid >= 0) {
      const auto of = std::ranges::find(out.list, own.reads.at(0).from, &GridNode::name);
      FQ_CHECK(of != out.list.end(), "import_onnx", "'{}' follows no attention", name);
      of->weights_grid = grid;
      out.output = marks[name] = own.reads[0];
      continue;
    }
    if (const int grid = grid_of_mark(node); grid >= 0) {
      // Two marks meet where a file quantizes a value twice in a row.
      const int twice = own.reads.at(0).grid;
      const auto& grids = file.grids;
      FQ_CHECK(std::size_t(grid) < grids.size(), "import_onnx", "'{}' is on no grid of the file", name);
      FQ_CHECK(twice < 0 || same_grid(grids.at(std::size_t(twice)), grids.at(std::size_t(grid))),
               "import_onnx", "{} quantizes a value again that {} quantized with another scale",
               grids[std::size_t(grid)].origin, grids[std::size_t(twice)].origin);
      out.output = marks[name] = {own.reads[0].from, grid};
      continue;
    }
    ModelNode& unmarked_node = out.nodes.emplace_back(node);
    unmarked_node.inputs.clear();
    for (const auto& each : own.reads) unmarked_node.inputs.push_back(each.from);
    out.list.push_back(std::move(own));
  }
  // A model returns its last node. If marks were the last nodes, the output may be an earlier one.
  const bool last = !out.list.empty() && out.list.back().name == out.output.from;
  if (!last) {
    out.nodes.push_back({.name = "network_output", .type = "identity", .inputs = {out.output.from}});
    out.list.push_back({"network_output", {out.output}});
    out.output = {"network_output"};
  }
  return out;
}

}  // namespace fq::detail
