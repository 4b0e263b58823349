#pragma once

/// Quantized recurrent layers.

#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/modules/recurrent.h"

namespace fq {

/// One weight of a recurrent layer and its quantizer: "lstm.weight_ih.weight_quantizer". The parameter is the
/// layer's.
class QuantMatrix : public Module, public QuantModule {
 public:
  explicit QuantMatrix(Variable weight);
  [[nodiscard]] std::string type() const override { return "quant_matrix"; }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::vector<Child<TensorQuantizer>> input_quantizers() const override { return {}; }
  [[nodiscard]] TensorQuantizer* weight_quantizer() const override { return quantizer_.get(); }
  [[nodiscard]] Variable quantized_weight() const override { return weight_; }
  [[nodiscard]] int weight_axis() const override { return 0; }

 private:
  Variable weight_;
  Child<TensorQuantizer> quantizer_;
};

/// A recurrent layer whose weights have codes. `quantize` gives each weight a quantizer by the rules of
/// weights and, for the target `ort`, an LSTM's input one of 8 bits, dynamic, with axis 0 unless a rule of
/// the user names another; formats that the engine's recurrent layer does not take leave the input as it is,
/// with a warning. An LSTM with its `input_quantizer` on multiplies integers, its input and its states in
/// codes of 8 bits with ranges of their own (ops::DynamicRange): one for each sample, or, where that
/// quantizer has no axis, one for the batch. Everything else is computed in floats, with the weights that the
/// codes stand for.
class QuantRecurrent : public Recurrent, public QuantModule {
 public:
  explicit QuantRecurrent(const Recurrent& layer);
  [[nodiscard]] std::string type() const override { return "quant_" + Recurrent::type(); }
  /// That of an LSTM's input and states; none of other kinds.
  [[nodiscard]] std::vector<Child<TensorQuantizer>> input_quantizers() const override { return inputs_; }
  /// Its weights, of the input and of the state in turn, as `weights` orders them.
  [[nodiscard]] const std::vector<Child<QuantMatrix>>& matrices() const noexcept { return matrices_; }
  /// The layer without quantizers; it has the same parameters.
  [[nodiscard]] std::shared_ptr<Recurrent> float_layer() const { return sharing(*this); }

 protected:
  [[nodiscard]] ops::RecurrentWeights used_weights(std::size_t i) const override;
  [[nodiscard]] ops::DynamicRange range() const override;

 private:
  std::vector<Child<TensorQuantizer>> inputs_;
  std::vector<Child<QuantMatrix>> matrices_;
};

}  // namespace fq
