#pragma once

/// Attention of queries, keys and values that others made.
///
///     DotProductAttention attend({.causal = true});
///     const Variable heads(x);  // [N, H, L, D], as queries, as keys and as values
///     const Variable sums = attend(std::vector<Variable>{heads, heads, heads});
///
/// It is torch's function of the name, and what an imported network has between its projections; Attention
/// has projections of its own, and a cache.

#include "fakequant/core/ops/attention.h"
#include "fakequant/layers/modules/quant_modules.h"

namespace fq {

/// y = ops::scaled_dot_product_attention of three inputs, or of four, the last being its mask.
class DotProductAttention : public Module {
 public:
  explicit DotProductAttention(const ops::AttentionOptions& options = {}) : options_(options) {}
  [[nodiscard]] std::string type() const override { return "scaled_dot_product_attention"; }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] const ops::AttentionOptions& options() const noexcept { return options_; }

 protected:
  /// Throws ArgumentError: there are three inputs or four.
  Variable forward(const Variable& x) override { return forward(std::vector<Variable>{x}); }
  Variable forward(const std::vector<Variable>& inputs) override;
  /// Of three inputs on their grids; the mask may be undefined.
  [[nodiscard]] virtual Variable attend(const Variable& q, const Variable& k, const Variable& v,
                                        const Variable& mask) const;

 private:
  ops::AttentionOptions options_;
};

/// The same with the quantizers of QuantAttention, all four off unless rules switch them on.
class QuantDotProductAttention : public DotProductAttention, public QuantModule {
 public:
  explicit QuantDotProductAttention(const DotProductAttention& layer);
  [[nodiscard]] std::string type() const override { return "quant_scaled_dot_product_attention"; }
  /// None: the four have names of their own.
  [[nodiscard]] std::vector<Child<TensorQuantizer>> input_quantizers() const override { return {}; }

 protected:
  [[nodiscard]] Variable attend(const Variable& q, const Variable& k, const Variable& v,
                                const Variable& mask) const override;

 private:
  Child<TensorQuantizer> q_, k_, v_, softmax_;
};

}  // namespace fq
