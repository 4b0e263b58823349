#pragma once

/// Attention whose products multiply codes.
///
///     auto config = QuantConfig::preset("int8");
///     config.rules.push_back({.pattern = "*bmm_quantizer", .fields = {.num_bits = 8}});
///     config.rules.push_back({.pattern = "*softmax_quantizer", .fields = {.num_bits = 8}});
///     quantize(model, config, {1, 64});

#include "fakequant/layers/modules/attention.h"
#include "fakequant/layers/modules/quant_modules.h"

namespace fq {

/// The children q_bmm_quantizer, k_bmm_quantizer, v_bmm_quantizer and softmax_quantizer (names as in
/// ModelOpt) quantize queries, keys, values [N, heads, tokens, head_size] and attention weights [N, heads, L,
/// S]. Each is off unless a rule enables it. Presets do not enable them. Attention weights are unsigned for
/// the target `ort`, with a fixed range of 1. A rule with `"amax": null` calibrates the range.
///
/// If queries and keys have codes, or attention weights do, scores and sums are products of ops::matmul with
/// ops::attention_weights between them. They are exact if both factors are integers with one scale. Rows [N,
/// kv_heads, heads / kv_heads * L, ..] hold all queries that share a head of keys. ONNX Runtime computes the
/// same. Otherwise ops::scaled_dot_product_attention reads the rounded values as floats: the cache holds
/// codes, and attention runs in floats.
class QuantAttention : public Attention, public QuantModule {
 public:
  /// Takes over the children of `layer`. All four quantizers are off.
  explicit QuantAttention(const Attention& layer);
  [[nodiscard]] std::string type() const override { return "quant_" + Attention::type(); }
  /// Returns an empty list: the projections own the input quantizers.
  [[nodiscard]] std::vector<Child<TensorQuantizer>> input_quantizers() const override { return {}; }
  /// Returns the names of the four quantizers, in the order above.
  [[nodiscard]] static const std::vector<std::string>& quantizer_names();

 protected:
  [[nodiscard]] Heads quantize_heads(Heads heads) const override;
  [[nodiscard]] bool is_plain() const override;
  [[nodiscard]] Variable attend(const Heads& heads, const Variable& mask) const override;

 private:
  Child<TensorQuantizer> q_, k_, v_, softmax_;
};

}  // namespace fq
