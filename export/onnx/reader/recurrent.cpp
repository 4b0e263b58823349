#include <algorithm>

#include <fmt/ranges.h>

#include "fakequant/core/detail/moves.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail::onnx_ops {
namespace {

/// Returns the gates of one direction in PyTorch's order.
Tensor reorder_gates(const Tensor& x, std::int64_t way, std::int64_t size,
                     const std::vector<std::int64_t>& order, std::int64_t first = 0) {
  const Tensor own = cut(x, 0, way, way + 1).reshape(Shape(x.shape().begin() + 1, x.shape().end()));
  std::vector<Tensor> parts;
  for (const auto block : order)
    parts.push_back(cut(own, 0, first + block * size, first + (block + 1) * size));
  return join(parts, 0);
}

struct Layer {
  const char* type;
  std::vector<std::int64_t> order;  ///< position of each PyTorch gate in ONNX's order
  std::int64_t ways, size;
  bool backwards;  ///< whether there is only the reverse direction
  bool relu;
  bool batch_first;

  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(order.size()) * size; }
};

/// Returns the functions of all directions. ONNX's defaults if the node names none.
std::vector<std::string> functions(const OpImport& op) {
  const auto* found = op.node().attribute("activations");
  if (found == nullptr) return {};
  const auto* names = std::get_if<std::vector<std::string>>(found);
  op.check(names != nullptr, "its attribute 'activations' is no list of names");
  return *names;
}

/// Whether all directions have these functions. `usual`: they are ONNX's defaults, which the node may omit.
bool computes(const std::vector<std::string>& given, const std::vector<std::string>& wanted, bool usual) {
  if (given.empty()) return usual;
  for (std::size_t i = 0; i < given.size(); ++i)
    if (given[i] != wanted[i % wanted.size()]) return false;
  return given.size() % wanted.size() == 0;
}

/// Throws for functions that the layers do not support.
void check_functions(const OpImport& op, Layer& layer) {
  const auto given = functions(op);
  std::vector<std::string> wanted{"Sigmoid", "Tanh"};
  if (layer.type == std::string_view("lstm")) wanted = {"Sigmoid", "Tanh", "Tanh"};
  if (layer.type == std::string_view("rnn")) {
    wanted = {"Tanh"};
    layer.relu = computes(given, {"Relu"}, false);
  }
  op.check(layer.relu || computes(given, wanted, true), "its activations are {}: layers support {}{}",
           fmt::join(given, ", "), fmt::join(wanted, ", "),
           layer.type == std::string_view("rnn") ? " or Relu, the same in both directions" : "");
}

/// Throws for lengths that are unknown or shorter than the sequence, and for peepholes.
void check_inputs(const OpImport& op, std::int64_t steps) {
  if (op.has_input(4)) {
    op.check(op.is_constant(4),
             "its sequences have different lengths ('sequence_lens' is computed): "
             "export it without packed sequences, all of one length");
    for (const auto length : op.constant(4).to(DType::i64).to_vector<std::int64_t>())
      op.check(length == steps,
               "a sequence has {} of {} steps ('sequence_lens'): all sequences must have full length", length,
               steps);
  }
  if (!op.has_input(7)) return;
  const auto peepholes = op.weight(7).to_vector<float>();
  op.check(std::ranges::all_of(peepholes, [](float v) { return v == 0; }),
           "it has peepholes ('P'), which are not supported");
}

bool is_batch_first(const OpImport& op) { return op.integer("layout", 0, 0, 1) == 1; }

/// Throws for unsupported options.
Layer read_layer(const OpImport& op, std::int64_t steps) {
  const bool is_lstm = op.node().op == "LSTM", is_gru = op.node().op == "GRU";
  const auto direction = op.text("direction", "forward");
  op.check(direction == "forward" || direction == "reverse" || direction == "bidirectional",
           "its direction is '{}'", direction);
  Layer layer{is_lstm  ? "lstm"
              : is_gru ? "gru"
                       : "rnn",
              {},
              direction == "bidirectional" ? 2 : 1,
              op.integer("hidden_size", 0, 1, kLargestSize),
              direction == "reverse",
              false,
              is_batch_first(op)};
  // ONNX has the gates i, o, f, g of LSTMs and z, r, n of GRUs. Layers have PyTorch's i, f, g, o and r, z, n.
  layer.order = is_lstm  ? std::vector<std::int64_t>{0, 2, 3, 1}
                : is_gru ? std::vector<std::int64_t>{1, 0, 2}
                         : std::vector<std::int64_t>{0};
  check_functions(op, layer);
  op.check(!op.has("clip"), "it clips its sums ('clip'), which is not supported");
  op.check(op.integer("input_forget", 0, 0, 1) == 0,
           "its input and forget gates are coupled ('input_forget' is 1), which is not supported");
  op.check(!is_gru || op.integer("linear_before_reset", 0, 0, 1) == 1,
           "its reset gate comes before the product ('linear_before_reset' is 0): layers support it only "
           "after the product");
  check_inputs(op, steps);
  return layer;
}

std::vector<LayerValue> recurrent_parameters(const OpImport& op, const Layer& layer, std::int64_t in) {
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
    values.push_back({"parameters", own[0], reorder_gates(w, way, layer.size, layer.order)});
    values.push_back({"parameters", own[1], reorder_gates(r, way, layer.size, layer.order)});
    values.push_back({"parameters", own[2], reorder_gates(b, way, layer.size, layer.order)});
    values.push_back({"parameters", own[3], reorder_gates(b, way, layer.size, layer.order, layer.rows())});
  }
  return values;
}

/// Exchanges the first two axes, unless the node has the batch first like the layers.
ImportValue exchange_first_axes(const OpImport& op, const ImportValue& x, const std::string& suffix) {
  if (is_batch_first(op)) return x;
  return op.layer("transpose", {{"axes", Shape{1, 0, 2}}}, {x}, {}, suffix);
}

/// Reverses the steps of [N, L, ..].
ImportValue reverse_steps(const OpImport& op, const ImportValue& x, const std::string& suffix) {
  std::vector<std::int64_t> back;
  for (std::int64_t i = x.shape[1] - 1; i >= 0; --i) back.push_back(i);
  return op.layer("index_select", {{"axis", 1}, {"indices", back}}, {x}, {}, suffix);
}

/// Returns the last steps of each direction as [D, N, H] or [N, D, H].
ImportValue last_states(const OpImport& op, const ImportValue& y, const Layer& layer) {
  std::vector<ImportValue> ends;
  for (std::int64_t way = 0; way < layer.ways; ++way) {
    // The reverse direction ends at the first step.
    const std::int64_t at = way == 0 && !layer.backwards ? y.shape[1] - 1 : 0;
    const auto step = op.layer("slice", {{"axis", 1}, {"begin", at}, {"end", at + 1}}, {y}, {}, "end");
    ends.push_back(op.layer("slice",
                            {{"axis", 2}, {"begin", way * layer.size}, {"end", (way + 1) * layer.size}},
                            {step}, {}, "state"));
  }
  const ImportValue all = ends.size() == 1 ? ends[0] : op.layer("concat", {{"axis", 1}}, ends, {}, "states");
  return exchange_first_axes(op, all, "last");
}

}  // namespace

ImportValue recurrent(const OpImport& op) {
  const ImportValue& x = op.value();
  const int samples = is_batch_first(op) ? 0 : 1;
  op.check(x.shape.size() == 3 && batch_axis(x.shape) == samples, "its input is {}: {} is needed",
           to_string(x.shape), samples == 0 ? "[N, steps, features]" : "[steps, N, features]");
  const Layer layer = read_layer(op, x.shape[samples == 0 ? 1 : 0]);
  std::vector<ImportValue> inputs{exchange_first_axes(op, x, "rows")};
  if (layer.backwards) inputs[0] = reverse_steps(op, inputs[0], "back");
  const std::size_t states = layer.type == std::string_view("lstm") ? 2 : 1;
  for (std::size_t i = 0; i < states; ++i) {
    if (!op.has_input(5 + i)) continue;
    const ImportValue& state = op.value(5 + i);
    op.check(inputs.size() == i + 1, "it has initial cells but no initial hidden states");
    op.check(state.shape.size() == 3 && batch_axis(state.shape) == samples,
             "its initial states are {}: {} is needed", to_string(state.shape),
             samples == 0 ? "[N, ways, features]" : "[ways, N, features]");
    inputs.push_back(exchange_first_axes(op, state, "initial"));
  }
  NodeOptions options{{"hidden_size", layer.size}};
  if (layer.ways == 2) options["bidirectional"] = true;
  if (layer.relu) options["nonlinearity"] = "relu";
  ImportValue y = op.layer(layer.type, options, inputs, recurrent_parameters(op, layer, x.shape[2]));
  if (layer.backwards) y = reverse_steps(op, y, "forth");
  const auto& outputs = op.node().outputs;
  if (outputs.size() > 1 && !outputs[1].empty()) op.give(1, last_states(op, y, layer));
  const auto ways = op.reshaped(y, {y.shape[0], y.shape[1], layer.ways, layer.size}, "ways");
  if (layer.batch_first) return ways;
  return op.layer("transpose", {{"axes", Shape{1, 2, 0, 3}}}, {ways}, {}, "outputs");
}

}  // namespace fq::detail::onnx_ops
