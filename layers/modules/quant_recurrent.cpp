#include "fakequant/layers/modules/quant_recurrent.h"

#include "fakequant/core/detail/check.h"

namespace fq {

QuantMatrix::QuantMatrix(Variable weight)
    : weight_(std::move(weight)),
      quantizer_(add_module("weight_quantizer", std::make_shared<TensorQuantizer>())) {}

std::string QuantMatrix::describe() const { return fmt::format("{} -> {}", weight_.dim(1), weight_.dim(0)); }

QuantRecurrent::QuantRecurrent(const Recurrent& layer) : Recurrent(Adopt(), layer) {
  // Only the LSTM has an engine that multiplies integers (DynamicQuantizeLSTM), so only it has an input
  // quantizer.
  if (kind() == Kind::lstm) {
    inputs_.push_back(add_module("input_quantizer", std::make_shared<TensorQuantizer>()));
    inputs_[0]->set_enabled(false);
  }
  for (std::size_t i = 0; i < weights().size(); ++i) {
    const auto& [input, hidden, input_bias, hidden_bias] = weights()[i];
    matrices_.push_back(add_module("weight_ih" + suffix(i), std::make_shared<QuantMatrix>(input)));
    matrices_.push_back(add_module("weight_hh" + suffix(i), std::make_shared<QuantMatrix>(hidden)));
  }
}

ops::RecurrentWeights QuantRecurrent::used_weights(std::size_t i) const {
  ops::RecurrentWeights out = weights()[i];
  out.input = matrices_[2 * i]->weight_quantizer()->weight(out.input);
  out.hidden = matrices_[2 * i + 1]->weight_quantizer()->weight(out.hidden);
  return out;
}

ops::DynamicRange QuantRecurrent::range() const {
  if (inputs_.empty() || !inputs_[0]->enabled() || !inputs_[0]->quantizing()) return ops::DynamicRange::none;
  const QuantDescriptor& d = inputs_[0]->descriptor();
  const bool per_sample = !d.axis().empty();
  FQ_CHECK(d.format().is_integer() && d.format().bits() == 8 && d.dynamic() && d.block_sizes().empty() &&
               (!per_sample || d.axis().values() == std::vector<int>{0}),
           "lstm", "'{}' is {}: an LSTM's input must be 8 bits, dynamic, with axis 0 or no axis, or disabled",
           inputs_[0]->name(), inputs_[0]->describe());
  return per_sample ? ops::DynamicRange::sample : ops::DynamicRange::tensor;
}

}  // namespace fq
