#pragma once

/// Quantized recurrent layers.

#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/modules/recurrent.h"

namespace fq {

/// A weight of a recurrent layer and its quantizer: "lstm.weight_ih.weight_quantizer". The recurrent layer
/// owns the parameter.
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

/// A recurrent layer with quantized weights. `quantize` gives each weight a quantizer that follows the rules
/// of weights.
///
/// For the target `ort`, it also gives an LSTM an input quantizer: 8 bits, dynamic, with axis 0 unless a user
/// rule sets another. Formats that the engine's recurrent layer does not support leave the input unquantized,
/// with a warning. An LSTM whose `input_quantizer` is on multiplies integers. Its input and its states are
/// 8-bit codes with dynamic ranges (ops::DynamicRange): one per sample, or one per batch if the quantizer has
/// no axis. The other operations compute in floats, with the dequantized weights.
class QuantRecurrent : public Recurrent, public QuantModule {
 public:
  explicit QuantRecurrent(const Recurrent& layer);
  [[nodiscard]] std::string type() const override { return "quant_" + Recurrent::type(); }
  /// Returns the quantizer of an LSTM's input and states. Empty for the other kinds.
  [[nodiscard]] std::vector<Child<TensorQuantizer>> input_quantizers() const override { return inputs_; }
  /// Returns the weights in the order of `weights`: input weight, then state weight.
  [[nodiscard]] const std::vector<Child<QuantMatrix>>& matrices() const noexcept { return matrices_; }
  /// Returns the layer without quantizers. Both share the parameters.
  [[nodiscard]] std::shared_ptr<Recurrent> float_layer() const { return sharing(*this); }

 protected:
  [[nodiscard]] ops::RecurrentWeights used_weights(std::size_t i) const override;
  [[nodiscard]] ops::DynamicRange range() const override;

 private:
  std::vector<Child<TensorQuantizer>> inputs_;
  std::vector<Child<QuantMatrix>> matrices_;
};

}  // namespace fq
