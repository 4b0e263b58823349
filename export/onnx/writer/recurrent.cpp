#include <algorithm>

#include "fakequant/core/detail/moves.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/export/onnx/writer/forms.h"
#include "fakequant/export/onnx/writer/grids.h"

namespace fq::detail {
namespace {

/// Reorders blocks of `size` rows.
Tensor reordered(const Tensor& x, std::int64_t size, const Numbers& order) {
  std::vector<Tensor> parts;
  for (const auto block : order) parts.push_back(cut(x, 0, block * size, (block + 1) * size));
  return join(parts, 0);
}

/// Writes one call of a recurrent operator. ONNX orders the gates of LSTMs as i, o, f, g and of GRUs as z, r,
/// n, and has steps before samples.
class RecurrentForm {
 public:
  RecurrentForm(Exporting& out, const Call& call)
      : out_(out),
        call_(call),
        name_(Exporting::node_name(call)),
        size_(call.get<std::int64_t>("hidden_size")) {
    // Blocks of PyTorch's order (LSTM i, f, g, o; GRU r, z, n) in the order of ONNX.
    order_ = call.op == "lstm" ? Numbers{0, 3, 1, 2} : call.op == "gru" ? Numbers{1, 0, 2} : Numbers{0};
    rows_ = static_cast<std::int64_t>(order_.size()) * size_;
  }

  void write() {
    const bool integers = call_.op == "lstm" && call_.get<std::string>("range") != "none";
    std::vector<std::string> inputs = integers ? integer_inputs() : float_inputs();
    GraphBuilder::Attributes attributes{
        {"hidden_size", size_},
        {"direction", std::string(call_.get<bool>("reverse") ? "reverse" : "forward")}};
    // PyTorch applies the reset gate after the product.
    if (call_.op == "gru") attributes.emplace_back("linear_before_reset", std::int64_t{1});
    if (call_.op == "rnn" && call_.get<bool>("relu"))
      attributes.emplace_back("activations", std::vector<std::string>{"Relu"});
    const char* op = integers             ? "DynamicQuantizeLSTM"
                     : call_.op == "lstm" ? "LSTM"
                     : call_.op == "gru"  ? "GRU"
                                          : "RNN";
    const std::string y = graph().add(op, name_ + ".layer", std::move(inputs), std::move(attributes));
    if (integers) set_engine_domain();
    const std::string ways = fq::detail::integers(out_, name_ + ".ways", {1});
    out_.node(call_, "Transpose", {graph().add("Squeeze", name_ + ".way", {y, ways})},
              {{"perm", Numbers{1, 0, 2}}});
  }

 private:
  GraphBuilder& graph() { return out_.graph(); }

  std::string steps() {
    return graph().add("Transpose", name_ + ".steps", {out_.input(call_, 0)}, {{"perm", Numbers{1, 0, 2}}});
  }

  std::string bias() {
    const auto own = [&](std::size_t i) {
      return call_.inputs.at(i).defined() ? reordered(call_.inputs[i].tensor(), size_, order_)
                                          : Tensor::zeros({rows_});
    };
    return graph().constant(name_ + ".bias", join({own(3), own(4)}, 0).reshape({1, 2 * rows_}));
  }

  /// Appends the initial states at their input positions.
  void add_states(std::vector<std::string>& inputs) {
    for (std::size_t i = 5; i < call_.inputs.size(); ++i) {
      if (!call_.inputs[i].defined()) continue;
      // Inputs are positional: 4 is sequence_lens, 5 and 6 are the initial states. Missing inputs are empty
      // names.
      inputs.resize(i, "");
      const std::string axis = fq::detail::integers(out_, name_ + ".axis", {0});
      inputs.push_back(graph().add("Unsqueeze", name_ + ".state", {out_.input(call_, i), axis}));
    }
  }

  /// Returns the weight [1, G*H, K], as floats or dequantized codes.
  std::string matrix(std::size_t i, const std::string& what) {
    const Variable& weight = call_.inputs.at(i);
    const QuantizedTensor* codes = out_.constant_codes(weight);
    if (codes == nullptr || !has_row_scales(*codes)) {
      const Tensor floats = reordered(codes == nullptr ? weight.tensor() : dequantize(*codes), size_, order_);
      return graph().constant(name_ + what, floats.reshape({1, rows_, floats.dim(1)}));
    }
    QuantizedTensor way = rows_in_order(*codes);
    way.codes = way.codes.reshape({1, rows_, way.codes.dim(1)});
    if (!way.grid.granularity.is_per_tensor()) way.grid.granularity = Granularity::per_axis(1);
    return add_weight(graph(), out_.options(), name_ + what, way, {});
  }

  static bool has_row_scales(const QuantizedTensor& codes) {
    const auto& by = codes.grid.granularity;
    return bit_width(codes.codes.dtype()) == 8 && (by.is_per_tensor() || by.single_axis(2) == 0);
  }

  [[nodiscard]] QuantizedTensor rows_in_order(const QuantizedTensor& codes) const {
    QuantizedTensor out{reordered(codes.codes, size_, order_), codes.grid, {}};
    if (!codes.grid.granularity.is_per_tensor()) {
      const Tensor scales = codes.grid.scale.reshape({rows_});
      out.grid.scale = reordered(scales, size_, order_);
    }
    return out;
  }

  std::vector<std::string> float_inputs() {
    std::vector<std::string> inputs{steps(), matrix(1, ".weight_ih"), matrix(2, ".weight_hh"), bias()};
    add_states(inputs);
    return inputs;
  }

  /// Returns codes [1, K, G*H] as inputs, with their scales and zero points at the end.
  std::vector<std::string> integer_inputs() {
    std::vector<std::string> inputs{steps(), "", "", bias()}, grids;
    for (const std::size_t i : {1, 2}) {
      const QuantizedTensor way = rows_in_order(*out_.constant_codes(call_.inputs.at(i)));
      const std::string& name = way.grid.name;
      const Tensor transposed =
          ops::transpose(Variable(code_values(way)), {1, 0}).tensor().to(code_type(way));
      inputs[i] = graph().constant(name + ".codes", transposed.reshape({1, transposed.dim(0), rows_}));
      const Shape scales = way.grid.scale.numel() == 1 ? Shape{1} : Shape{1, rows_};
      grids.push_back(graph().constant(name + ".scale", way.grid.scale.reshape(scales)));
      grids.push_back(graph().constant(name + ".zero_point", Tensor::zeros(scales, code_type(way))));
    }
    add_states(inputs);
    // DynamicQuantizeLSTM has the inputs of LSTM (0 to 7), then scale and zero point of W and of R.
    inputs.resize(8, "");
    inputs.insert(inputs.end(), grids.begin(), grids.end());
    return inputs;
  }

  static DType code_type(const QuantizedTensor& codes) {
    return codes.grid.format.integer().is_unsigned ? DType::u8 : DType::i8;
  }

  void set_engine_domain() {
    constexpr const char* domain = "com.microsoft";
    OnnxModel& model = graph().model;
    model.nodes.back().domain = domain;
    const std::pair<std::string, std::int64_t> opset(domain, 1);
    if (std::ranges::find(model.other_opsets, opset) == model.other_opsets.end())
      model.other_opsets.push_back(opset);
  }

  Exporting& out_;
  const Call& call_;
  std::string name_;
  std::int64_t size_, rows_ = 0;
  Numbers order_;
};

void recurrent(Exporting& out, const Call& call) { RecurrentForm(out, call).write(); }

}  // namespace

Forms recurrent_forms() { return {{"lstm", recurrent}, {"gru", recurrent}, {"rnn", recurrent}}; }

}  // namespace fq::detail
