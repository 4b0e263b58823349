#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/join.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail::onnx_ops {
namespace {

using nlohmann::ordered_json;

/// The gates of one direction in PyTorch's order.
Tensor gates(const Tensor& x, std::int64_t way, std::int64_t size, const std::vector<std::int64_t>& order,
             std::int64_t first = 0) {
  const Tensor own = cut(x, 0, way, way + 1).reshape(Shape(x.shape().begin() + 1, x.shape().end()));
  std::vector<Tensor> parts;
  for (const auto block : order)
    parts.push_back(cut(own, 0, first + block * size, first + (block + 1) * size));
  return join(parts, 0);
}

struct Layer {
  const char* type;
  std::vector<std::int64_t> order;  ///< where the gates of ours are in ONNX's
  std::int64_t ways, size;
  bool backwards;  ///< that way alone

  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(order.size()) * size; }
};

/// Throws for what our layers do not compute.
Layer layer_of(const OpImport& op) {
  const bool is_lstm = op.node().op == "LSTM";
  const auto direction = op.text("direction", "forward");
  op.check(direction == "forward" || direction == "reverse" || direction == "bidirectional",
           "its direction is '{}'", direction);
  Layer layer{is_lstm ? "lstm" : "gru",
              {},
              direction == "bidirectional" ? 2 : 1,
              op.integer("hidden_size", 0, 1, kLargestSize),
              direction == "reverse"};
  layer.order = is_lstm ? std::vector<std::int64_t>{0, 2, 3, 1} : std::vector<std::int64_t>{1, 0, 2};
  op.check(!op.has("activations") && !op.has("clip") && op.integer("input_forget", 0, 0, 1) == 0,
           "it has activations of its own, a clip, or couples its gates");
  op.check(
      is_lstm || op.integer("linear_before_reset", 0, 0, 1) == 1,
      "its reset stands before the product ('linear_before_reset' is 0): PyTorch's layers have it behind");
  op.check(op.integer("layout", 0, 0, 1) == 0, "its batch comes first ('layout' is 1)");
  op.check(!op.has_input(4), "its sequences have lengths of their own");
  op.check(!op.has_input(7), "it has peepholes");
  return layer;
}

std::vector<LayerValue> values_of(const OpImport& op, const Layer& layer, std::int64_t in) {
  const Tensor w = op.weight(1), r = op.weight(2);
  const Tensor b = op.has_input(3) ? op.weight(3) : Tensor::zeros({layer.ways, 2 * layer.rows()});
  op.check(w.shape() == Shape{layer.ways, layer.rows(), in} &&
               r.shape() == Shape{layer.ways, layer.rows(), layer.size} &&
               b.shape() == Shape{layer.ways, 2 * layer.rows()},
           "its weights are {}, {} and {}", w.describe(), r.describe(), b.describe());
  constexpr const char* names[2][4] = {
      {"weight_ih", "weight_hh", "bias_ih", "bias_hh"},
      {"weight_ih_reverse", "weight_hh_reverse", "bias_ih_reverse", "bias_hh_reverse"}};
  std::vector<LayerValue> values;
  for (std::int64_t way = 0; way < layer.ways; ++way) {
    const auto& own = names[way];
    values.push_back({"parameters", own[0], gates(w, way, layer.size, layer.order)});
    values.push_back({"parameters", own[1], gates(r, way, layer.size, layer.order)});
    values.push_back({"parameters", own[2], gates(b, way, layer.size, layer.order)});
    values.push_back({"parameters", own[3], gates(b, way, layer.size, layer.order, layer.rows())});
  }
  return values;
}

ImportValue turned(const OpImport& op, const ImportValue& x, const std::vector<int>& axes,
                   const std::string& suffix) {
  return op.layer("transpose", {{"axes", axes}}, {x}, {}, suffix);
}

/// [N, L, ..] with its steps in the other order.
ImportValue turned_round(const OpImport& op, const ImportValue& x, const std::string& suffix) {
  std::vector<std::int64_t> back;
  for (std::int64_t i = x.shape[1] - 1; i >= 0; --i) back.push_back(i);
  return op.layer("index_select", {{"axis", 1}, {"indices", back}}, {x}, {}, suffix);
}

/// [D, N, H] of the last steps, each way.
ImportValue last_states(const OpImport& op, const ImportValue& y, const Layer& layer) {
  std::vector<ImportValue> ends;
  for (std::int64_t way = 0; way < layer.ways; ++way) {
    const std::int64_t at = way == 0 && !layer.backwards ? y.shape[1] - 1 : 0;
    const auto step = op.layer("slice", {{"axis", 1}, {"begin", at}, {"end", at + 1}}, {y}, {}, "end");
    ends.push_back(op.layer("slice",
                            {{"axis", 2}, {"begin", way * layer.size}, {"end", (way + 1) * layer.size}},
                            {step}, {}, "state"));
  }
  const ImportValue all = ends.size() == 1 ? ends[0] : op.layer("concat", {{"axis", 1}}, ends, {}, "states");
  return turned(op, all, {1, 0, 2}, "last");
}

}  // namespace

ImportValue recurrent(const OpImport& op) {
  const ImportValue& x = op.value();
  op.check(x.shape.size() == 3 && batch_axis(x.shape) == 1, "its input is not [steps, N, features]");
  const Layer layer = layer_of(op);
  std::vector<ImportValue> inputs{turned(op, x, {1, 0, 2}, "rows")};
  if (layer.backwards) inputs[0] = turned_round(op, inputs[0], "back");
  const std::size_t states = layer.type == std::string_view("lstm") ? 2 : 1;
  for (std::size_t i = 0; i < states; ++i) {
    if (!op.has_input(5 + i)) continue;
    const ImportValue& state = op.value(5 + i);
    op.check(inputs.size() == i + 1, "it begins with cells and without hidden states");
    op.check(batch_axis(state.shape) == 1, "its initial states are not [ways, N, features]");
    inputs.push_back(turned(op, state, {1, 0, 2}, "initial"));
  }
  ordered_json options{{"hidden_size", layer.size}};
  if (layer.ways == 2) options["bidirectional"] = true;
  ImportValue y = op.layer(layer.type, options, inputs, values_of(op, layer, x.shape[2]));
  if (layer.backwards) y = turned_round(op, y, "forth");
  const auto& outputs = op.node().outputs;
  if (outputs.size() > 1 && !outputs[1].empty()) op.give(1, last_states(op, y, layer));
  const auto ways = op.reshaped(y, {y.shape[0], y.shape[1], layer.ways, layer.size}, "ways");
  return turned(op, ways, {1, 2, 0, 3}, "outputs");
}

}  // namespace fq::detail::onnx_ops
