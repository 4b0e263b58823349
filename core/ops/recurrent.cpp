#include "fakequant/core/ops/recurrent.h"

#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/detail/recurrent_sequence.h"

namespace fq::ops {
namespace {

using detail::RecurrentCell;
using detail::RecurrentInputs;

constexpr std::string_view range_name(DynamicRange range) {
  return range == DynamicRange::none ? "none" : range == DynamicRange::tensor ? "tensor" : "sample";
}

/// Returns a parameter of the given shape, converted to floats unless it has codes and `codes` is set.
/// Undefined parameters stay undefined.
Variable parameter(const Variable& p, const Tensor& x, const Shape& wanted, bool codes, std::string_view op,
                   std::string_view what) {
  if (!p.defined()) return p;
  FQ_CHECK(p.shape() == wanted, op, "{} is {}, it must be {}", what, to_string(p.shape()), to_string(wanted));
  if (!codes || p.quantized() == nullptr) return detail::matching_floats(p, x, op).variable;
  FQ_CHECK(p.device() == x.device() && x.dtype() == DType::f32, op,
           "{} has codes on {}, the input is {}: use f32 on the same device", what, to_string(p.device()),
           x.describe());
  return p;
}

/// Returns the inputs converted to floats. Checks their shapes.
RecurrentInputs checked(std::string_view op, RecurrentCell cell, const Variable& input,
                        const RecurrentWeights& given) {
  const auto x = detail::floats(input, op);
  const Shape shape = x.tensor.shape();
  FQ_CHECK(shape.size() == 3 && shape[1] > 0, op, "the input is {}: use [N, L, I] of one step or more",
           to_string(shape));
  FQ_CHECK(given.hidden.defined() && given.hidden.rank() == 2 && given.input.defined(), op,
           "the weights of the input and of the state must be defined and have two axes");
  RecurrentInputs out{
      .op = op, .cell = cell, .x = x.variable, .weights = given, .hidden = {}, .state_cell = {}};
  return out;
}

void check_weights(RecurrentInputs& in) {
  const Tensor x = in.x.tensor();
  const std::int64_t width = in.weights.hidden.dim(1), rows = detail::gate_count(in.cell) * width;
  // Codes stay codes only for integer products, which quantize input and state at run time. Otherwise the
  // weights are dequantized once per call instead of once per step.
  const bool codes = in.range != DynamicRange::none;
  in.weights = {parameter(in.weights.input, x, {rows, x.dim(2)}, codes, in.op, "the weight of the input"),
                parameter(in.weights.hidden, x, {rows, width}, codes, in.op, "the weight of the state"),
                parameter(in.weights.input_bias, x, {rows}, false, in.op, "the bias of the input"),
                parameter(in.weights.hidden_bias, x, {rows}, false, in.op, "the bias of the state")};
  for (Variable* state : {&in.hidden, &in.state_cell})
    *state = parameter(*state, x, {x.dim(0), width}, false, in.op, "an initial state");
}

// The whole sequence is one node of the tape. Its backward function runs the steps in reverse.
Variable run(const RecurrentInputs& in, Attributes attributes) {
  auto inputs = in.all();
  const auto sequence = std::make_shared<detail::RecurrentSequence>(in, detail::needs_grad(inputs));
  return detail::record(
      in.op, sequence->output(), std::move(inputs),
      [sequence](const Tensor& dy) { return sequence->backward(dy); }, std::move(attributes));
}

Attributes recurrent_attributes(const RecurrentInputs& in) {
  return {{"reverse", in.reverse}, {"hidden_size", in.width()}};
}

}  // namespace

bool has_integer_weights(const RecurrentWeights& weights) {
  return detail::has_integer_rows(weights.input) && detail::has_integer_rows(weights.hidden);
}

Variable lstm(const Variable& x, const RecurrentWeights& weights, const Variable& hidden,
              const Variable& cell, bool reverse, DynamicRange range) {
  auto in = checked("lstm", RecurrentCell::lstm, x, weights);
  in.reverse = reverse;
  in.range = range;
  in.hidden = hidden;
  in.state_cell = cell;
  check_weights(in);
  return run(in, detail::traced([&] {
               Attributes all = recurrent_attributes(in);
               all.emplace_back("range", std::string(range_name(range)));
               return all;
             }));
}

Variable gru(const Variable& x, const RecurrentWeights& weights, const Variable& hidden, bool reverse) {
  auto in = checked("gru", RecurrentCell::gru, x, weights);
  in.reverse = reverse;
  in.hidden = hidden;
  check_weights(in);
  return run(in, detail::traced([&] { return recurrent_attributes(in); }));
}

Variable rnn(const Variable& x, const RecurrentWeights& weights, const Variable& hidden, bool relu,
             bool reverse) {
  auto in = checked("rnn", relu ? RecurrentCell::rnn_relu : RecurrentCell::rnn_tanh, x, weights);
  in.reverse = reverse;
  in.hidden = hidden;
  check_weights(in);
  return run(in, detail::traced([&] {
               Attributes all = recurrent_attributes(in);
               all.emplace_back("relu", relu);
               return all;
             }));
}

}  // namespace fq::ops
