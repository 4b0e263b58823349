#pragma once

/// Layers of engines that quantize the input at run time, and tables of codes. `quantize` inserts them for
/// the targets ort_dynamic, xnnpack and ggml.

#include "fakequant/core/ops/engines/engine_ops.h"
#include "fakequant/layers/modules/quant_modules.h"

namespace fq {

namespace detail {
class KeptEngineWeight;
}

/// A Linear layer with weight codes whose engine quantizes the input with its own ranges
/// (ops::engine_linear). The input quantizer enables it. The layer multiplies floats while that quantizer is
/// off or only observes, or if the weight has no codes. Outside of training the layer keeps the weight in the
/// engine's format until the codes change.
class QuantEngineLinear : public QuantWeighted<Linear> {
 public:
  /// Takes over `layer` as QuantWeighted does.
  QuantEngineLinear(const Linear& layer, RowEngine engine);
  /// Returns the engine whose bits the layer reproduces.
  [[nodiscard]] RowEngine engine() const noexcept { return engine_; }

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  RowEngine engine_;
  std::shared_ptr<detail::KeptEngineWeight> kept_weight_;
};

/// An Embedding whose table holds codes. A lookup returns the values of the codes.
class QuantEmbedding : public Embedding, public QuantModule {
 public:
  /// Takes over the table of `layer` and adds an 8-bit quantizer without a range.
  explicit QuantEmbedding(const Embedding& layer);
  [[nodiscard]] std::string type() const override { return "quant_embedding"; }
  [[nodiscard]] std::vector<Child<TensorQuantizer>> input_quantizers() const override { return {}; }
  [[nodiscard]] TensorQuantizer* weight_quantizer() const override { return weight_quantizer_.get(); }
  [[nodiscard]] Variable quantized_weight() const override { return weight_; }

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  Child<TensorQuantizer> weight_quantizer_;
};

}  // namespace fq
