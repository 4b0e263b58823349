#include "fakequant/layers/modules/recurrent.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/layers/modules/detail/init.h"

namespace fq {

Recurrent::Recurrent(Kind kind, std::int64_t in, std::int64_t hidden, bool bidirectional) : kind_(kind) {
  FQ_CHECK(in > 0 && hidden > 0, type(), "{} to {} features: use 1 or more", in, hidden);
  const std::int64_t rows = (kind == Kind::lstm ? 4 : 3) * hidden;
  for (const std::string way : {"", "_reverse"}) {
    if (!way.empty() && !bidirectional) break;
    ops::RecurrentWeights weights;
    weights.input = add_parameter("weight_ih" + way, detail::init_uniform({rows, in}, hidden));
    weights.hidden = add_parameter("weight_hh" + way, detail::init_uniform({rows, hidden}, hidden));
    weights.input_bias = add_parameter("bias_ih" + way, detail::init_uniform({rows}, hidden));
    weights.hidden_bias = add_parameter("bias_hh" + way, detail::init_uniform({rows}, hidden));
    ways_.push_back(weights);
  }
}

std::string Recurrent::describe() const {
  const auto& first = ways_.front();
  return fmt::format("{} -> {}{}", first.input.dim(1), first.hidden.dim(1),
                     ways_.size() > 1 ? ", both ways" : "");
}

Variable Recurrent::one_way(const std::vector<Variable>& inputs, std::size_t way) const {
  const auto state = [&](std::size_t i) -> Variable {
    if (i >= inputs.size()) return {};
    FQ_CHECK(inputs[i].rank() == 3 && inputs[i].dim(1) == static_cast<std::int64_t>(ways_.size()), type(),
             "an initial state is {}: give [N, {}, {}]", to_string(inputs[i].shape()), ways_.size(),
             ways_[way].hidden.dim(1));
    const auto at = static_cast<std::int64_t>(way);
    return ops::reshape(ops::slice(inputs[i], 1, at, at + 1), {inputs[i].dim(0), inputs[i].dim(2)});
  };
  if (kind_ == Kind::gru) return ops::gru(inputs[0], ways_[way], state(1), way == 1);
  return ops::lstm(inputs[0], ways_[way], state(1), state(2), way == 1);
}

Variable Recurrent::forward(const std::vector<Variable>& inputs) {
  const std::size_t most = kind_ == Kind::lstm ? 3 : 2;
  FQ_CHECK(!inputs.empty() && inputs.size() <= most, type(), "{} inputs: it takes 1 to {}", inputs.size(),
           most);
  const Variable there = one_way(inputs, 0);
  return ways_.size() == 1 ? there : ops::concat({there, one_way(inputs, 1)}, 2);
}

}  // namespace fq
