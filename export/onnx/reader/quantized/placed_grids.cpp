#include "fakequant/export/onnx/reader/quantized/placed_grids.h"

#include <map>
#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/operators.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/export/quantized/detail/file_grids.h"
#include "fakequant/layers/detail/quant_factories.h"
#include "fakequant/layers/model/fold.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/modules/quant_attention.h"

namespace fq::detail {
namespace {

using nlohmann::ordered_json;

Tensor transpose_matrix(const Tensor& x) { return ops::transpose(Variable(x), {1, 0}).tensor(); }

class Placing {
 public:
  Placing(const ImportedModel& floats, const UnmarkedNodes& nodes, const Unquantized& file)
      : state_(floats.state), nodes_(nodes), file_(file), graph_(floats.build()) {
    for (const auto& node : nodes.list) by_name_.emplace(node.name, &node);
    batch_ = {1};
    batch_.insert(batch_.end(), floats.sample_shape.begin(), floats.sample_shape.end());
    const TraceGraph traced = trace(*graph_, batch_);
    // ReLU is the maximum of a code and 0, so rounding before or after it gives the same codes.
    for (const auto& node : traced.nodes)
      if (traits(node.op).keeps_codes || node.op == "relu") moving_.insert(node.path);
    // Folding a batch norm would change the codes of the weight before it, so `add_weight` rejects it.
    for (const auto& pair : foldable_batch_norms(*graph_, traced)) normed_.emplace(pair.layer, pair.norm);
  }

  PlacedGrids run() {
    out_.rules.push_back(all_off());
    for (const auto& node : nodes_.list) {
      const Module& layer = graph_->at(node.name);
      if (layer.type() == "scaled_dot_product_attention") {
        place_attention(node);
        continue;
      }
      if (!is_quantizable(layer)) continue;
      place_weight(node.name);
      place_inputs(node);
    }
    for (std::size_t i = 0; i < file_.weights.size(); ++i)
      FQ_CHECK(used_weights_.contains(i), "import_onnx",
               "{} quantizes a constant that is not the weight of a supported layer: keep it in floats",
               file_.weights[i].grid.origin);
    // Outputs come last: `place_output` needs to know which values have a quantizer at their reader.
    for (const auto& node : nodes_.list)
      for (std::size_t i = 0; i < node.reads.size(); ++i) place_output(node, i);
    if (nodes_.output.grid >= 0) place_producer_grid(nodes_.output, "the network's output");
    return std::move(out_);
  }

 private:
  [[nodiscard]] const StoredGrid& grid(int index) const { return file_.grids.at(std::size_t(index)); }
  [[nodiscard]] bool moves(const std::string& name) const { return moving_.contains(name); }

  /// Returns the grid of a value, also if it was moved afterwards. -1: none.
  [[nodiscard]] int value_grid(const GridNode::Read& read) const {
    if (read.grid >= 0 || !moves(read.from)) return read.grid;
    return value_grid(by_name_.at(read.from)->reads.at(0));
  }

  /// A rule for the first input applies to all inputs, so an input in floats needs its own rule.
  void place_inputs(const GridNode& node) {
    const auto type = graph_->at(node.name).type();
    if (type == "embedding") return;
    std::vector<std::string> floats;
    for (std::size_t i = 0; i < node.reads.size(); ++i) {
      const int index = value_grid(node.reads[i]);
      const std::string name =
          node.name + (i == 0 ? ".input_quantizer" : ".input_quantizer_" + std::to_string(i));
      if (index < 0) {
        floats.push_back(name);
        continue;
      }
      add(name, grid(index));
      placed_.insert({node.name, i});
    }
    if (floats.size() == node.reads.size()) return;
    for (const auto& name : floats) out_.rules.push_back({{"pattern", name}, {"enable", false}});
  }

  /// Places the grids of queries, keys, values and attention weights.
  void place_attention(const GridNode& node) {
    const auto& names = QuantAttention::quantizer_names();
    // Inputs are queries, keys and values. A further input is a mask, which has no quantizer.
    for (std::size_t i = 0; i < 3; ++i) {
      const int index = value_grid(node.reads.at(i));
      if (index < 0) continue;
      FQ_CHECK(grid(index).scale.rank() == 0, "import_onnx",
               "{} has a scale per channel within attention: one scale is supported", grid(index).origin);
      add(node.name + "." + names.at(i), grid(index));
      placed_.insert({node.name, i});
    }
    if (node.weights_grid >= 0) add(node.name + "." + names.at(3), grid(node.weights_grid));
  }

  void add(const std::string& quantizer, const StoredGrid& stored) {
    out_.rules.push_back(grid_rule(quantizer, stored.format));
    if (stored.axis != -1) out_.rules.back()["axis"] = stored.axis;
    out_.grids.push_back({quantizer, stored.origin, stored.scale, {}});
  }

  /// Finds weights by their values, because other tools change the names.
  void place_weight(const std::string& node) {
    const std::string key = "parameters/" + node + ".weight";
    if (!state_.contains(key)) return;
    const Tensor own = state_.at(key);
    for (std::size_t i = 0; i < file_.weights.size(); ++i) {
      const StoredWeight& stored = file_.weights[i];
      const bool same = stored.values.numel() == own.numel() &&
                        bitwise_equal(stored.values.reshape(own.shape()), own) &&
                        (stored.values.shape() == own.shape() || stored.grid.axis < 0);
      const bool turns = !same && stored.values.rank() == 2 && own.rank() == 2 &&
                         stored.values.dim(0) == own.dim(1) && stored.values.dim(1) == own.dim(0) &&
                         bitwise_equal(transpose_matrix(stored.values), own);
      if (!same && !turns) continue;
      used_weights_.insert(i);
      return add_weight(node, stored, own.shape(), turns);
    }
  }

  void add_weight(const std::string& node, const StoredWeight& stored, const Shape& shape, bool turns) {
    if (const auto norm = normed_.find(node); norm != normed_.end())
      FQ_CHECK(false, "import_onnx",
               "{} has the codes of '{}', which the batch norm '{}' follows: fold it before quantizing",
               stored.grid.origin, node, norm->second);
    Tensor codes = (turns ? transpose_matrix(stored.codes) : stored.codes).reshape(shape);
    const Format format = narrowed(stored.grid.format, codes);
    const std::string quantizer = node + ".weight_quantizer";
    ordered_json rule = grid_rule(quantizer, format);
    Tensor scale = stored.grid.scale;
    if (stored.grid.axis != -1 || scale.rank() > 0) {
      int axis = stored.grid.axis < 0 ? stored.grid.axis + stored.codes.rank() : stored.grid.axis;
      if (turns) axis = 1 - axis;
      if (turns && scale.rank() == 2) scale = transpose_matrix(scale);
      if (stored.grid.block > 0) {
        rule.erase("axis");
        rule["block_sizes"] = {{std::to_string(axis - codes.rank()), stored.grid.block}};
      } else {
        rule["axis"] = axis;
      }
    }
    out_.rules.push_back(std::move(rule));
    out_.grids.push_back({quantizer, stored.grid.origin,
                          scale.reshape(scale.rank() > 0 ? Shape{-1} : Shape{}), std::move(codes)});
  }

  /// Places grids of values whose readers have no quantizer.
  void place_output(const GridNode& node, std::size_t i) {
    const GridNode::Read& read = node.reads[i];
    if (read.grid < 0 || placed_.contains({node.name, i})) return;
    // The value keeps its grid through the move, and its readers have quantizers for it.
    if (moves(node.name) && all_readers_quantize(node.name, read.grid)) return;
    place_producer_grid(read, fmt::format("the input of '{}' ({})", node.name, graph_->at(node.name).type()));
  }

  /// Whether all readers of a node quantize it to that grid.
  [[nodiscard]] bool all_readers_quantize(const std::string& name, int index) const {
    bool any = false;
    for (const auto& node : nodes_.list)
      for (const auto& read : node.reads) {
        if (read.from != name) continue;
        any = true;
        const int own = read.grid;
        const bool same = own >= 0 ? same_grid(grid(own), grid(index))
                                   : moves(node.name) || placed_.contains({node.name, 0});
        if (!same || (own < 0 && moves(node.name) && !all_readers_quantize(node.name, index))) return false;
      }
    if (nodes_.output.from == name)
      return nodes_.output.grid >= 0 && same_grid(grid(nodes_.output.grid), grid(index));
    return any;
  }

  /// Places the grid at the output of the layer that computes the value. All readers must have that grid.
  void place_producer_grid(const GridNode::Read& read, const std::string& what) {
    std::string maker = read.from;
    while (moves(maker)) maker = by_name_.at(maker)->reads.at(0).from;
    const StoredGrid& stored = grid(read.grid);
    const bool weighted = maker != "input" && state_.contains("parameters/" + maker + ".weight") &&
                          is_quantizable(graph_->at(maker)) && graph_->at(maker).type() != "embedding";
    FQ_CHECK(
        weighted && used_weights_.size() == file_.weights.size() && all_readers_share_grid(maker, read.grid),
        "import_onnx", "{} quantizes {}, where the network has no quantizer: do not quantize this value",
        stored.origin, what);
    const std::string quantizer = maker + ".output_quantizer";
    if (outputs_.insert(quantizer).second) add(quantizer, stored);
  }
  [[nodiscard]] bool all_readers_share_grid(const std::string& name, int index) const {
    for (const auto& node : nodes_.list)
      for (const auto& read : node.reads)
        if (read.from == name &&
            (read.grid < 0 ? !moves(node.name) : !same_grid(grid(read.grid), grid(index))))
          return false;
    return true;
  }

  const StateDict& state_;
  const UnmarkedNodes& nodes_;
  const Unquantized& file_;
  std::shared_ptr<Graph> graph_;
  Shape batch_;
  std::map<std::string, const GridNode*> by_name_;
  std::set<std::string> moving_, outputs_;
  std::map<std::string, std::string> normed_;
  std::set<std::pair<std::string, std::size_t>> placed_;
  std::set<std::size_t> used_weights_;
  PlacedGrids out_;
};

}  // namespace

PlacedGrids placed_grids(const ImportedModel& floats, const UnmarkedNodes& nodes, const Unquantized& file) {
  return Placing(floats, nodes, file).run();
}

}  // namespace fq::detail
