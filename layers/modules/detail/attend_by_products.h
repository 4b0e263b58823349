#pragma once

/// Attention as two matrix products with the attention weights between them.

#include <optional>

#include "fakequant/core/ops/attention.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::detail {

/// Whether scores or sums multiply codes. The attention weights are then computed explicitly.
[[nodiscard]] bool attends_on_codes(const Variable& q, const Variable& k, const TensorQuantizer& softmax);

/// Processing of the attention weights. Without `softmax` they are not quantized.
struct OnWeights {
  std::optional<Child<TensorQuantizer>> softmax = {};
  double dropout = 0;  ///< probability of dropping a weight, after the quantizer
};

/// Computes scaled_dot_product_attention with ops::matmul and ops::attention_weights. Rows [N, K, H / K * L,
/// ..] hold all queries that share a head of keys.
///
/// Backward keeps only q, k and v and recomputes scores, weights and their codes with the same bits. The
/// recomputed values live only during the backward pass of this attention. A GPU keeps them instead.
///
/// On a CPU, causal integer attention runs in blocks of rows (`attend_by_rows`). The result has the same
/// bits, because the skipped products have codes of 0. Attention runs as a whole with a mask, with dropout,
/// or if the quantizer of the weights observes, updates a running range or learns its range.
[[nodiscard]] Variable attend_by_products(const Variable& q, const Variable& k, const Variable& v,
                                          const OnWeights& on_weights, const ops::AttentionOptions& options,
                                          const Variable& mask);

}  // namespace fq::detail
