#pragma once

/// Attention whose products are of codes.
///
///     auto config = QuantConfig::preset("int8");
///     config.rules.push_back({.pattern = "*bmm_quantizer", .fields = {.num_bits = 8}});
///     config.rules.push_back({.pattern = "*softmax_quantizer", .fields = {.num_bits = 8}});
///     quantize(model, config, {1, 64});

#include "fakequant/layers/modules/attention.h"
#include "fakequant/layers/modules/quant_modules.h"

namespace fq {

/// The children q_bmm_quantizer, k_bmm_quantizer, v_bmm_quantizer and softmax_quantizer, as ModelOpt names
/// them, put queries, keys, values [N, heads, tokens, head_size] and probabilities [N, heads, L, S] on grids.
/// Each is off unless a rule switches it on; presets do not. Probabilities are unsigned for the target `ort`,
/// with a fixed range of 1; a rule with `"amax": null` has it calibrated.
///
/// Where queries and keys have codes, or probabilities do, scores and sums are products of ops::matmul, exact
/// where both sides are integers of one scale, with ops::attention_weights between: rows [N, kv_heads, heads
/// / kv_heads * L, ..] of all queries that share a head of keys. This is what ONNX Runtime computes. Else
/// ops::scaled_dot_product_attention reads floats on their grids: a cache of codes, and attention in floats.
class QuantAttention : public Attention, public QuantModule {
 public:
  /// Takes over the children of `layer`; all four quantizers are off.
  explicit QuantAttention(const Attention& layer);
  [[nodiscard]] std::string type() const override { return "quant_" + Attention::type(); }
  /// None: the projections have those of the inputs.
  [[nodiscard]] std::vector<Child<TensorQuantizer>> input_quantizers() const override { return {}; }
  /// The names of the four, in the order above.
  [[nodiscard]] static const std::vector<std::string>& quantizer_names();

 protected:
  [[nodiscard]] Heads on_grids(Heads heads) const override;
  [[nodiscard]] bool is_plain() const override;
  [[nodiscard]] Variable attend(const Heads& heads, const Variable& mask) const override;

 private:
  Child<TensorQuantizer> q_, k_, v_, softmax_;
};

}  // namespace fq
