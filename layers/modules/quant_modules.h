#pragma once

/// The quantized counterparts of layers: they derive from the float layer and take over its parameters.
///
/// `quantize` (layers/quantize.h) puts them where the float layers were. Their quantizers are children, found
/// by path: "conv1.input_quantizer", "conv1.weight_quantizer", "conv1.output_quantizer".
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

/// What every quantized module can tell about its quantizers.
///
/// A layer of one's own is quantized by a class that derives from Module and from this one, and is registered
/// by `register_quant_module`. Quantizers that it names are owned by the module, as children.
class QuantModule {
 public:
  virtual ~QuantModule() = default;
  /// One slot for each input, in their order; the names of the children are "input_quantizer",
  /// "input_quantizer_1", .. Two slots may hold one quantizer.
  [[nodiscard]] virtual std::vector<Child<TensorQuantizer>> input_quantizers() const = 0;
  /// The quantizer of the weight: null for modules without one; a SequentialQuantizer for several after one
  /// another.
  [[nodiscard]] virtual TensorQuantizer* weight_quantizer() const { return nullptr; }
  /// The quantizer of the output: null for modules that have none; off unless a rule switches it on.
  [[nodiscard]] virtual TensorQuantizer* output_quantizer() const { return nullptr; }
  /// The parameter that the weight quantizer quantizes, floats or, compressed, codes; undefined for modules
  /// without a weight.
  [[nodiscard]] virtual Variable quantized_weight() const { return {}; }
  /// The engine that its quantizers were placed for; `quantize` sets it.
  [[nodiscard]] Target target() const noexcept { return target_; }
  /// Sets it, which changes no number by itself.
  void set_target(Target target) noexcept { target_ = target; }
  /// The axis of output channels of the weight, along which ranges per channel lie; -1 where per-channel
  /// scales cannot be factored out of the products.
  [[nodiscard]] virtual int weight_axis() const { return -1; }

 private:
  Target target_ = Target::none;
};

/// y = op(input_quantizer(x), weight_quantizer(w)) + b, then the output quantizer (off by default). It shares
/// the float layer's parameters, so that optimizers made before stay right.
template <class Float>
class QuantWeighted : public Float, public QuantModule {
 public:
  /// Takes over name, mode and parameters of `layer`, with quantizers of 8 bits that know no range yet.
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
  /// The output quantizer's answer.
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

/// The float layer on quantized inputs: additions, concatenations, averages. Each input has a quantizer of
/// its own; where several inputs are one tensor, `quantize` makes these one.
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
/// Quantized tensors side by side, on one grid where the target asks for it.
using QuantConcat = QuantInputs<Concat>;
/// Averages of codes, rounded once.
using QuantAvgPool2d = QuantInputs<AvgPool2d>;
using QuantAvgPool3d = QuantInputs<AvgPool3d>;
using QuantGlobalAvgPool2d = QuantInputs<GlobalAvgPool2d>;

}  // namespace fq
