#pragma once

/// Quantized counterparts of layers. They derive from the float layer and take over its parameters.
///
/// `quantize` (layers/quantize.h) replaces the float layers by them. Their quantizers are children with paths
/// like "conv1.input_quantizer", "conv1.weight_quantizer" and "conv1.output_quantizer".
///
///     for (const auto& [path, module] : model.named_modules())
///       if (auto* layer = dynamic_cast<QuantModule*>(module))
///         if (auto* weights = layer->weight_quantizer()) std::cout << path << weights->amax() << '\n';

#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/model/merge.h"
#include "fakequant/layers/modules/conv.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq {

/// Interface of every quantized module: access to its quantizers.
///
/// To quantize your own layer, derive a class from Module and QuantModule and register it with
/// `register_quant_module`. The module owns its quantizers as children.
class QuantModule {
 public:
  virtual ~QuantModule() = default;
  /// Returns one slot per input, in order. The children are named "input_quantizer", "input_quantizer_1", ..
  /// Two slots may hold the same quantizer.
  [[nodiscard]] virtual std::vector<Child<TensorQuantizer>> input_quantizers() const = 0;
  /// Returns the quantizer of the weight. Returns null for modules without a weight, and a
  /// SequentialQuantizer for several quantizers in sequence.
  [[nodiscard]] virtual TensorQuantizer* weight_quantizer() const { return nullptr; }
  /// Returns the quantizer of the output, which is off unless a rule enables it. Returns null for modules
  /// without one.
  [[nodiscard]] virtual TensorQuantizer* output_quantizer() const { return nullptr; }
  /// Returns the parameter that the weight quantizer quantizes: floats, or codes after `compress`. Undefined
  /// for modules without a weight.
  [[nodiscard]] virtual Variable quantized_weight() const { return {}; }
  /// Returns the engine that the quantizers were placed for, as set by `quantize`.
  [[nodiscard]] Target target() const noexcept { return target_; }
  /// Sets the target engine. This changes no values.
  void set_target(Target target) noexcept { target_ = target; }
  /// Returns the weight axis of output channels, along which ranges per channel lie. Returns -1 if
  /// per-channel scales cannot be factored out of the products.
  [[nodiscard]] virtual int weight_axis() const { return -1; }

 private:
  Target target_ = Target::none;
};

/// Computes y = op(input_quantizer(x), weight_quantizer(w)) + b, then the output quantizer (off by default).
/// The layer shares the parameters of the float layer, so existing optimizers stay valid.
template <class Float>
class QuantWeighted : public Float, public QuantModule {
 public:
  /// Takes over name, mode and parameters of `layer` and adds 8-bit quantizers without ranges.
  explicit QuantWeighted(const Float& layer)
      : Float(typename Float::Adopt{}, layer),
        input_(this->add_module("input_quantizer", std::make_shared<TensorQuantizer>())),
        weight_quantizer_(this->add_module("weight_quantizer", std::make_shared<TensorQuantizer>())),
        output_(this->add_module("output_quantizer", std::make_shared<TensorQuantizer>())) {
    output_->set_enabled(false);
  }

  [[nodiscard]] std::string type() const override { return "quant_" + Float::type(); }
  [[nodiscard]] std::vector<Child<TensorQuantizer>> input_quantizers() const override { return {input_}; }
  [[nodiscard]] TensorQuantizer* weight_quantizer() const override { return weight_quantizer_.get(); }
  [[nodiscard]] TensorQuantizer* output_quantizer() const override { return output_.get(); }
  [[nodiscard]] Variable quantized_weight() const override { return this->weight_; }
  [[nodiscard]] int weight_axis() const override { return this->channel_axis(); }

 protected:
  Variable forward(const Variable& x) override {
    return finished(this->apply(input_(x), weight_quantizer_->weight(this->weight_)));
  }
  using Module::forward;
  /// Applies the output quantizer.
  [[nodiscard]] Variable finished(const Variable& y) const { return output_(y); }

 private:
  Child<TensorQuantizer> input_, weight_quantizer_, output_;
};

/// A quantized Linear; ranges per channel of its weight lie along the rows.
using QuantLinear = QuantWeighted<Linear>;
/// Quantized convolutions; ranges per channel of their weights lie along the output channels.
using QuantConv1d = QuantWeighted<Conv1d>;
using QuantConv2d = QuantWeighted<Conv2d>;
using QuantConv3d = QuantWeighted<Conv3d>;
using QuantConvTranspose1d = QuantWeighted<ConvTranspose1d>;
using QuantConvTranspose2d = QuantWeighted<ConvTranspose2d>;
using QuantConvTranspose3d = QuantWeighted<ConvTranspose3d>;

/// The float layer on quantized inputs: additions, concatenations, averages. Each input has its own
/// quantizer. If several inputs are the same tensor, `quantize` makes them share one.
template <class Float>
class QuantInputs : public Float, public QuantModule {
 public:
  QuantInputs(const Float& layer, std::size_t inputs) : Float(layer.options()) {
    this->adopt(layer);
    for (std::size_t i = 0; i < inputs; ++i)
      inputs_.push_back(this->add_module(i == 0 ? "input_quantizer" : "input_quantizer_" + std::to_string(i),
                                         std::make_shared<TensorQuantizer>()));
  }

  [[nodiscard]] std::string type() const override { return "quant_" + Float::type(); }
  [[nodiscard]] std::vector<Child<TensorQuantizer>> input_quantizers() const override { return inputs_; }

 protected:
  Variable forward(const Variable& x) override { return Float::forward(inputs_[0](x)); }
  Variable forward(const std::vector<Variable>& inputs) override {
    std::vector<Variable> codes;
    for (std::size_t i = 0; i < inputs.size(); ++i) codes.push_back(inputs_.at(i)(inputs[i]));
    return Float::forward(codes);
  }

 private:
  std::vector<Child<TensorQuantizer>> inputs_;
};

/// An addition of two quantized tensors, rounded once.
using QuantAdd = QuantInputs<Add>;
/// A concatenation of quantized tensors, on one grid if the target requires it.
using QuantConcat = QuantInputs<Concat>;
/// Averages of codes, rounded once.
using QuantAvgPool2d = QuantInputs<AvgPool2d>;
using QuantAvgPool3d = QuantInputs<AvgPool3d>;
using QuantGlobalAvgPool2d = QuantInputs<GlobalAvgPool2d>;

}  // namespace fq
