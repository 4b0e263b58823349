#pragma once

/// Layers of engines that round the input as they run, and tables of codes: what `quantize` puts in place for
/// the targets ort_dynamic, xnnpack and ggml.

#include "fakequant/core/ops/engines/engine_ops.h"
#include "fakequant/layers/modules/quant_modules.h"

namespace fq {

namespace detail {
class KeptEngineWeight;
}

/// A Linear on codes of its weight, whose engine rounds the input by its own ranges (ops::engine_linear). The
/// input quantizer says whether that is done; while it is off, observes alone or has no codes of the weight
/// to go with, floats are multiplied. Outside of training the weight is kept as the engine reads it, until
/// its codes change.
class QuantEngineLinear : public QuantWeighted<Linear> {
 public:
  /// Takes over `layer` as QuantWeighted does.
  QuantEngineLinear(const Linear& layer, RowEngine engine);
  /// Whose bits the layer has.
  [[nodiscard]] RowEngine engine() const noexcept { return engine_; }

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  RowEngine engine_;
  std::shared_ptr<detail::KeptEngineWeight> kept_weight_;
};

/// An Embedding whose table is codes: rows that are looked up are the values of these.
class QuantEmbedding : public Embedding, public QuantModule {
 public:
  /// Takes over the table of `layer`, with a quantizer of 8 bits that knows no range yet.
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
