#pragma once

/// Attention without projections: the caller computes queries, keys and values.
///
///     DotProductAttention attend({.causal = true});
///     const Variable heads(x);  // [N, H, L, D], as queries, as keys and as values
///     const Variable sums = attend(std::vector<Variable>{heads, heads, heads});
///
/// It matches torch.nn.functional.scaled_dot_product_attention. Imported networks have it between their
/// projections. Attention has its own projections, and a cache.

#include "fakequant/core/ops/attention.h"
#include "fakequant/layers/modules/quant_modules.h"

namespace fq {

/// Computes ops::scaled_dot_product_attention of queries, keys and values, with a mask as optional fourth
/// input.
class DotProductAttention : public Module {
 public:
  explicit DotProductAttention(const ops::AttentionOptions& options = {}) : options_(options) {}
  [[nodiscard]] std::string type() const override { return "scaled_dot_product_attention"; }
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] const ops::AttentionOptions& options() const noexcept { return options_; }

 protected:
  /// Throws ArgumentError: the layer needs three or four inputs.
  Variable forward(const Variable& x) override { return forward(std::vector<Variable>{x}); }
  Variable forward(const std::vector<Variable>& inputs) override;
  /// Computes attention of quantized or float inputs. The mask may be undefined.
  [[nodiscard]] virtual Variable attend(const Variable& q, const Variable& k, const Variable& v,
                                        const Variable& mask) const;

 private:
  ops::AttentionOptions options_;
};

/// Adds the quantizers of QuantAttention. All four are off unless a rule enables them.
class QuantDotProductAttention : public DotProductAttention, public QuantModule {
 public:
  explicit QuantDotProductAttention(const DotProductAttention& layer);
  [[nodiscard]] std::string type() const override { return "quant_scaled_dot_product_attention"; }
  /// Returns an empty list: the four quantizers have their own names.
  [[nodiscard]] std::vector<Child<TensorQuantizer>> input_quantizers() const override { return {}; }

 protected:
  [[nodiscard]] Variable attend(const Variable& q, const Variable& k, const Variable& v,
                                const Variable& mask) const override;

 private:
  Child<TensorQuantizer> q_, k_, v_, softmax_;
};

}  // namespace fq
