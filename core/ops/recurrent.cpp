#include "fakequant/core/ops/recurrent.h"

#include <algorithm>

#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/detail/composite.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/ops/shape.h"

namespace fq::ops {
namespace {

/// Inputs read as floats, of shapes that fit.
struct Sequence {
  std::string_view op;
  Variable x;
  RecurrentWeights weights;
  std::vector<Variable> states;
  std::int64_t batch, steps, width;

  Sequence(std::string_view name, const Variable& input, const RecurrentWeights& given, std::int64_t gates,
           const std::vector<Variable>& initial)
      : op(name) {
    const auto read = detail::floats(input, op);
    x = read.variable;
    const Shape shape = read.tensor.shape();
    FQ_CHECK(shape.size() == 3 && shape[1] > 0, op, "the input is {}: give [N, L, I] of one step or more",
             to_string(shape));
    batch = shape[0];
    steps = shape[1];
    const auto parameter = [&](const Variable& p, const Shape& wanted, std::string_view what) {
      if (!p.defined()) return p;
      const auto floats = detail::floats_like(p, read.tensor, op);
      FQ_CHECK(floats.tensor.shape() == wanted, op, "{} is {}, it must be {}", what,
               to_string(floats.tensor.shape()), to_string(wanted));
      return floats.variable;
    };
    FQ_CHECK(given.hidden.defined() && given.hidden.rank() == 2 && given.input.defined(), op,
             "the weights of the input and of the state are needed, of two axes");
    width = given.hidden.dim(1);
    weights = {parameter(given.input, {gates * width, shape[2]}, "the weight of the input"),
               parameter(given.hidden, {gates * width, width}, "the weight of the state"),
               parameter(given.input_bias, {gates * width}, "the bias of the input"),
               parameter(given.hidden_bias, {gates * width}, "the bias of the state")};
    for (const auto& state : initial) states.push_back(parameter(state, {batch, width}, "an initial state"));
  }

  [[nodiscard]] std::vector<Variable> inputs() const {
    std::vector<Variable> all{x, weights.input, weights.hidden, weights.input_bias, weights.hidden_bias};
    all.insert(all.end(), states.begin(), states.end());
    return all;
  }
  /// The i-th state that the sequence begins with.
  [[nodiscard]] Variable first(std::size_t i) const {
    if (states[i].defined()) return states[i];
    const Tensor like = x.tensor();
    return Tensor::zeros({batch, width}, like.dtype(), like.device());
  }
  [[nodiscard]] Variable of_state(const Variable& h) const {
    return linear(h, weights.hidden, weights.hidden_bias);
  }

  /// The states that `step` makes of the input's gates [N, G*H] and the state before, side by side.
  template <class Step>
  [[nodiscard]] Variable run(bool reverse, Step step) const {
    auto attributes = detail::traced([&] {
      return Attributes{{"reverse", reverse}, {"hidden_size", width}};
    });
    return detail::composite(op, inputs(), std::move(attributes), [&] {
      const Variable gates = linear(x, weights.input, weights.input_bias);
      std::vector<Variable> outputs(static_cast<std::size_t>(steps));
      for (std::int64_t i = 0; i < steps; ++i) {
        const std::int64_t t = reverse ? steps - 1 - i : i;
        const Variable now = reshape(slice(gates, 1, t, t + 1), {batch, gates.dim(2)});
        outputs[static_cast<std::size_t>(t)] = step(now);
      }
      return stack(outputs, 1);
    });
  }
};

Variable gate(const Variable& gates, std::int64_t i, std::int64_t width) {
  return slice(gates, 1, i * width, (i + 1) * width);
}

}  // namespace

Variable lstm(const Variable& x, const RecurrentWeights& weights, const Variable& hidden,
              const Variable& cell, bool reverse) {
  const Sequence sequence("lstm", x, weights, 4, {hidden, cell});
  Variable h = sequence.first(0), c = sequence.first(1);
  return sequence.run(reverse, [&, n = sequence.width](const Variable& of_input) {
    const Variable gates = add(of_input, sequence.of_state(h));
    const Variable kept = multiply(sigmoid(gate(gates, 1, n)), c);
    c = add(kept, multiply(sigmoid(gate(gates, 0, n)), tanh(gate(gates, 2, n))));
    return h = multiply(sigmoid(gate(gates, 3, n)), tanh(c));
  });
}

Variable gru(const Variable& x, const RecurrentWeights& weights, const Variable& hidden, bool reverse) {
  const Sequence sequence("gru", x, weights, 3, {hidden});
  Variable h = sequence.first(0);
  return sequence.run(reverse, [&, n = sequence.width](const Variable& of_input) {
    const Variable of_state = sequence.of_state(h);
    const Variable reset = sigmoid(add(gate(of_input, 0, n), gate(of_state, 0, n))),
                   keep = sigmoid(add(gate(of_input, 1, n), gate(of_state, 1, n))),
                   fresh = tanh(add(gate(of_input, 2, n), multiply(reset, gate(of_state, 2, n))));
    return h = add(fresh, multiply(keep, sub(h, fresh)));
  });
}

}  // namespace fq::ops
