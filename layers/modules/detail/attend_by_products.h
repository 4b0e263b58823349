#pragma once

/// Attention as two products with the weights between them.

#include <optional>

#include "fakequant/core/ops/attention.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::detail {

/// Whether scores or sums are of codes, so that the weights are made by themselves.
[[nodiscard]] bool attends_on_codes(const Variable& q, const Variable& k, const TensorQuantizer& softmax);

/// What becomes of the weights, which are not quantized without `softmax`.
struct OnWeights {
  std::optional<Child<TensorQuantizer>> softmax = {};
  double dropout = 0;  ///< share of them, behind the quantizer
};

/// scaled_dot_product_attention by ops::matmul and ops::attention_weights: rows [N, K, H / K * L, ..] of all
/// queries that share a head of keys.
///
/// Backward keeps q, k and v alone and makes scores, weights and their codes again, with the same bits: they
/// live only while the gradients of this attention are made. On a GPU they are kept.
///
/// On a CPU causal attention of integers is that of `attend_by_rows`: y has every bit, as what is left out
/// are products with codes of 0. It goes whole with a mask, dropout, or a quantizer of the weights that is
/// observing, running or learning.
[[nodiscard]] Variable attend_by_products(const Variable& q, const Variable& k, const Variable& v,
                                          const OnWeights& on_weights, const ops::AttentionOptions& options,
                                          const Variable& mask);

}  // namespace fq::detail
