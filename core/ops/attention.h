#pragma once

/// Attention and rotary position embeddings.
///
///     const Variable rotated = ops::rotary(x, {.base = 10000.0});  // [N, H, L, D]
///     const Variable y = ops::scaled_dot_product_attention(rotated, rotated, x, {.causal = true});

#include <optional>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq::ops {

struct AttentionOptions {
  /// Causal mask: query i of L sees only keys 0 to i + S - L of S, and the last query sees all keys. If L >
  /// S, the first queries see no key.
  bool causal = false;
  /// Factor of the scores. Default: 1/sqrt(D).
  std::optional<double> scale = {};
};

/// Returns y [N, H, L, E] = softmax(scale * q k^T + mask) v, with the softmax over the keys (Vaswani et al.,
/// arXiv:1706.03762).
///
/// q is [N, H, L, D], k [N, K, S, D] and v [N, K, S, E], all f32 or all f64. Codes are dequantized first. K
/// divides H: H / K neighbouring heads of q share one head of k and v (grouped queries, Ainslie et al.,
/// arXiv:2305.13245; K = 1 is multi-query). The output is row-major.
///
/// `mask` is a constant that broadcasts against [N, H, L, S] from the right. A mask in the dtype of q is
/// added to the scores, and -infinity hides a key. In a u8 mask, 0 hides a key. A row that sees no key gives
/// 0, and no gradient.
///
/// If q, k and v are sums or values of codes, processors with bf16 products compute the gradients from
/// factors rounded to bf16 (f16 on a GPU), unless BackwardType::fp32 is active. No [L, S] matrix is kept for
/// backward: scores are computed for some heads and rows at a time, in blocks that depend only on the sizes,
/// and recomputed. Results have the same bits for any number of threads.
///
/// A GPU computes f32 heads of up to 256 channels with one kernel, by f16 products of high and low parts with
/// f32 sums (FlashAttention-2, Dao, arXiv:2307.08691). An infinity in q, k or v then gives NaN in the rows
/// that see it.
///
/// Throws ArgumentError if shapes, dtypes or devices do not fit, or if the mask requires a gradient.
[[nodiscard]] Variable scaled_dot_product_attention(const Variable& q, const Variable& k, const Variable& v,
                                                    const AttentionOptions& options = {},
                                                    const Variable& mask = {});

/// Returns the attention weights softmax(scale * scores + mask) over the last axis, for callers that compute
/// the scores in another way, for example as a product of codes. `scores` is [N, H, L, S], f32 or f64. Sums
/// that are not rounded yet are converted to floats. The default scale is 1. Mask, causal masking and rows
/// that see no key work as in `scaled_dot_product_attention`. Scores, their gradients and the weights are
/// whole matrices in memory. Throws ArgumentError under the same conditions.
[[nodiscard]] Variable attention_weights(const Variable& scores, const AttentionOptions& options = {},
                                         const Variable& mask = {});

struct Rotary {
  double base = 10000.0;
  std::int64_t first = 0;    ///< position of row 0
  std::int64_t dims = 0;     ///< number of rotated elements, from the first; 0: all
  bool interleaved = false;  ///< whether pairs are neighbours (GPT-J); else i and i + dims/2 (Llama)
  /// Angle per position of each pair. Empty: base^(-2i / dims).
  std::vector<double> frequencies = {};
  double magnitude = 1;  ///< factor of the rotated elements
};

/// Applies rotary position embeddings (Su et al., arXiv:2104.09864): rotates pair i of row l of x [.., L, D]
/// by the angle (first + l) * base^(-2i / dims). Products of queries and keys then depend on their distance.
///
/// `x` is f32 or f64. Angles are computed in f64 and rounded. Throws ArgumentError for less than two axes,
/// for an odd or too large `dims` (with 0: an odd D), for a negative `first`, for a base or magnitude that is
/// not above 0, and if the number of frequencies differs from the number of pairs.
[[nodiscard]] Variable rotary(const Variable& x, const Rotary& options = {});

}  // namespace fq::ops
