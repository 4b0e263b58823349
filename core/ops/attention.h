#pragma once

/// Attention, and positions by rotation.
///
///     const Variable turned = ops::rotary(x, {.base = 10000.0});  // [N, H, L, D]
///     const Variable y = ops::scaled_dot_product_attention(turned, turned, x, {.causal = true});

#include <optional>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq::ops {

struct AttentionOptions {
  /// Whether query i of L sees keys 0 to i + S - L of S alone: the last query sees all. A query that comes
  /// before every key, which L > S has, sees none.
  bool causal = false;
  /// What scores are multiplied by; 1/sqrt(D) unless it is given.
  std::optional<double> scale = {};
};

/// y [N, H, L, E] = softmax(scale * q k^T + mask) v, over the keys (Vaswani et al., arXiv:1706.03762).
///
/// q is [N, H, L, D], k [N, K, S, D], v [N, K, S, E], f32 or all f64; codes are dequantized first. K divides
/// H: H / K neighbouring heads of q read one head of k and v (grouped queries, Ainslie et al.,
/// arXiv:2305.13245; K = 1 is multi-query). The output is row-major.
///
/// `mask`, a constant, broadcasts against [N, H, L, S] from the right: floats of q's dtype are added,
/// -infinity hides a key; of u8 anything but 0 is seen. A row that sees no key gives 0, and no gradient.
///
/// Where q, k and v are sums or values of codes, processors with bf16 products pass gradients backward by
/// products of factors rounded to bf16, unless BackwardType::fp32 is in force; probabilities are those of
/// forward. No [L, S] matrix is kept for backward: scores are made of some heads and rows at a time, by sizes
/// alone, and made again with the same bits. Results have the same bits for any number of threads. Throws
/// ArgumentError when shapes, dtypes or devices do not fit, and for a mask that takes a gradient.
[[nodiscard]] Variable scaled_dot_product_attention(const Variable& q, const Variable& k, const Variable& v,
                                                    const AttentionOptions& options = {},
                                                    const Variable& mask = {});

/// The weights of `scaled_dot_product_attention` by themselves, softmax(scale * scores + mask) over the last
/// axis: for who makes the scores of q and k otherwise, such as of their codes. Scores are [N, H, L, S], f32
/// or f64; sums not yet rounded are read as floats. The scale is 1 unless it is given; mask, causal and rows
/// that see no key are as there. Scores, their gradients and the weights are whole matrices in memory. Throws
/// ArgumentError as that does.
[[nodiscard]] Variable attention_weights(const Variable& scores, const AttentionOptions& options = {},
                                         const Variable& mask = {});

struct Rotary {
  double base = 10000.0;
  std::int64_t first = 0;    ///< the position of row 0
  std::int64_t dims = 0;     ///< elements that are rotated, the first ones; 0 for all
  bool interleaved = false;  ///< whether neighbours are a pair (GPT-J); else i and i + dims/2 (Llama)
  /// Angles of one position, of each pair, in place of base^(-2i / dims); empty for these.
  std::vector<double> frequencies = {};
  double magnitude = 1;  ///< what rotated elements are multiplied by
};

/// Rotary positions (Su et al., arXiv:2104.09864): pair i of the elements of row l of x [.., L, D] is turned
/// by the angle (first + l) * base^(-2i / dims), so that products of queries and keys tell how far apart they
/// are.
///
/// `x` is f32 or f64; angles are made in f64 and rounded. Throws ArgumentError for less than two axes, an odd
/// or too large `dims` (with 0 an odd D), a negative `first`, a base or magnitude that is not above 0 and
/// another number of frequencies than of pairs.
[[nodiscard]] Variable rotary(const Variable& x, const Rotary& options = {});

}  // namespace fq::ops
