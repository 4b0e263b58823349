#include "fakequant/layers/modules/recurrent.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/layers/modules/detail/init.h"

namespace fq {
namespace {

// Number of gate matrices that are stacked in one weight.
std::int64_t gates(Recurrent::Kind kind) {
  return kind == Recurrent::Kind::lstm ? 4 : kind == Recurrent::Kind::gru ? 3 : 1;
}

}  // namespace

Recurrent::Recurrent(Kind kind, const RecurrentOptions& options) : kind_(kind), options_(options) {
  const auto& [in, hidden, bidirectional, layers, dropout] = options;
  FQ_CHECK(in > 0 && hidden > 0 && layers > 0, type(), "{} to {} features in {} layers: use 1 or more", in,
           hidden, layers);
  FQ_CHECK(dropout >= 0 && dropout <= 1, type(), "a dropout of {}: use 0 to 1", dropout);
  const std::int64_t rows = gates(kind) * hidden;
  for (std::size_t i = 0; i < static_cast<std::size_t>(layers) * ways(); ++i) {
    // weights_ has the layers in order, each with its directions. Layers after the first read both
    // directions.
    const std::int64_t columns = i < ways() ? in : hidden * static_cast<std::int64_t>(ways());
    const auto parameter = [&, fan = hidden](const char* name, Shape shape) {
      return add_parameter(name + suffix(i), detail::init_uniform(std::move(shape), fan));
    };
    ops::RecurrentWeights weights;
    weights.input = parameter("weight_ih", {rows, columns});
    weights.hidden = parameter("weight_hh", {rows, hidden});
    weights.input_bias = parameter("bias_ih", {rows});
    weights.hidden_bias = parameter("bias_hh", {rows});
    weights_.push_back(weights);
  }
}

Recurrent::Recurrent(Adopt, const Recurrent& other)
    : kind_(other.kind_), options_(other.options_), weights_(other.weights_) {
  adopt(other);
}

std::shared_ptr<Recurrent> Recurrent::sharing(const Recurrent& other) {
  return std::shared_ptr<Recurrent>(new Recurrent(Adopt(), other));
}

std::string Recurrent::type() const {
  return kind_ == Kind::lstm ? "lstm" : kind_ == Kind::gru ? "gru" : "rnn";
}

std::string Recurrent::describe() const {
  return fmt::format("{} -> {}{}{}{}", options_.in, options_.hidden,
                     options_.layers > 1 ? fmt::format(", {} layers", options_.layers) : "",
                     options_.bidirectional ? ", both ways" : "", kind_ == Kind::rnn_relu ? ", relu" : "");
}

// PyTorch's names, without "_l0" for a single layer.
std::string Recurrent::suffix(std::size_t i) const {
  const std::string layer = options_.layers > 1 ? fmt::format("_l{}", i / ways()) : "";
  return layer + (i % ways() == 1 ? "_reverse" : "");
}

Variable Recurrent::state(const std::vector<Variable>& inputs, std::size_t which, std::size_t i) const {
  if (which >= inputs.size()) return {};
  const Variable& all = inputs[which];
  FQ_CHECK(all.rank() == 3 && all.dim(1) == static_cast<std::int64_t>(weights_.size()), type(),
           "an initial state is {}: use [N, {}, {}]", to_string(all.shape()), weights_.size(),
           options_.hidden);
  // A state is [N, layers * directions, hidden].
  const auto at = static_cast<std::int64_t>(i);
  return ops::reshape(ops::slice(all, 1, at, at + 1), {all.dim(0), all.dim(2)});
}

Variable Recurrent::one_way(const Variable& x, const std::vector<Variable>& inputs, std::size_t i) const {
  const ops::RecurrentWeights weights = used_weights(i);
  const Variable hidden = state(inputs, 1, i);
  const bool reverse = i % ways() == 1;
  if (kind_ == Kind::gru) return ops::gru(x, weights, hidden, reverse);
  if (kind_ != Kind::lstm) return ops::rnn(x, weights, hidden, kind_ == Kind::rnn_relu, reverse);
  // Inputs are rounded only next to integer weights: otherwise the product is in floats.
  const auto range = ops::has_integer_weights(weights) ? this->range() : ops::DynamicRange::none;
  return ops::lstm(x, weights, hidden, state(inputs, 2, i), reverse, range);
}

Variable Recurrent::forward(const std::vector<Variable>& inputs) {
  const std::size_t most = kind_ == Kind::lstm ? 3 : 2;
  FQ_CHECK(!inputs.empty() && inputs.size() <= most, type(), "{} inputs: use 1 to {}", inputs.size(), most);
  Variable x = inputs[0];
  for (std::size_t i = 0; i < weights_.size(); i += ways()) {
    // Between layers only, as in PyTorch.
    if (i > 0) x = ops::dropout(x, options_.dropout, training());
    const Variable there = one_way(x, inputs, i);
    x = ways() == 1 ? there : ops::concat({there, one_way(x, inputs, i + 1)}, 2);
  }
  return x;
}

}  // namespace fq
