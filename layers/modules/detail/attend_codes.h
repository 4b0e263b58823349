#pragma once

/// Attention as two products of codes with the weights between them.

#include "fakequant/core/ops/attention.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::detail {

/// Whether scores or sums are of codes, so that the weights are made by themselves.
[[nodiscard]] bool attends_on_codes(const Variable& q, const Variable& k, const TensorQuantizer& softmax);

/// scaled_dot_product_attention by ops::matmul and ops::attention_weights, whose weights go through
/// `softmax`: rows [N, K, H / K * L, ..] of all queries that share a head of keys.
///
/// Backward keeps q, k and v alone and makes scores, weights and their codes again, with the same bits: they
/// live only while the gradients of this attention are made. On a GPU they are kept.
[[nodiscard]] Variable attend_codes(const Variable& q, const Variable& k, const Variable& v,
                                    const Child<TensorQuantizer>& softmax,
                                    const ops::AttentionOptions& options, const Variable& mask);

}  // namespace fq::detail
