#pragma once

/// Blockwise attention, which never holds a matrix of all scores.

#include <vector>

#include "fakequant/core/backend/attention_rows.h"
#include "fakequant/core/ops/attention.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// A group is the set of heads that share keys; the query rows of these heads are contiguous. A block is
/// several groups, or some rows of one group: the number that fits into scratch memory of a fixed size. On a
/// CPU with many groups, each thread computes whole groups, with scratch that fits its cache. The limit for
/// "many" does not depend on the number of threads. On a CPU, causal attention with many queries uses blocks
/// of a few rows of one head, for any number of samples. These blocks skip the keys that their last row does
/// not see. The skipped products have probability 0, and no sum changes.
class AttentionBlocks {
 public:
  /// With `all_keys`, causal blocks skip no keys (for tests).
  AttentionBlocks(const AttentionShape& shape, const AttentionRows& rows, Device device,
                  bool all_keys = false);

  /// Returns whether AttentionSamples suits these sizes: many samples, few rows.
  [[nodiscard]] bool may_be_samples() const noexcept;

  /// Returns y for row-major q, k and v. `mask` may be undefined.
  [[nodiscard]] Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) const;
  /// Returns dq, dk and dv, from products of factors of the given type: the inputs' dtype or bf16. The
  /// probabilities are the same as in forward.
  [[nodiscard]] std::vector<Tensor> backward(const Tensor& dy, const Tensor& q, const Tensor& k,
                                             const Tensor& v, const Tensor& mask, DType factors) const;

 private:
  struct Block {
    std::int64_t group, groups, row, rows, keys;  // rows per group, keys that they read
  };
  template <class F>
  void each(F&& f) const;
  [[nodiscard]] std::int64_t block_row_count(std::int64_t row) const;
  [[nodiscard]] std::int64_t keys_of_rows(std::int64_t end) const;
  /// Returns the block's part of a tensor as [samples * kv_heads, rows of a group, elements].
  [[nodiscard]] Tensor block_queries(const Tensor& x, const Block& block) const;
  [[nodiscard]] Tensor block_keys(const Tensor& x, const Block& block) const;
  /// Returns the probabilities [groups, rows, keys of the block].
  [[nodiscard]] Tensor weights(const Tensor& q, const Tensor& k, const Tensor& mask,
                               const Block& block) const;

  /// Multiplies scores, or their gradients, by keys or values.
  void times_keys(const Tensor& scores, const Tensor& keys, Tensor& out) const;

  AttentionShape shape_;
  AttentionRows rows_;
  std::int64_t group_rows_;
  bool in_heads_, apart_, all_keys_;
  std::int64_t block_groups_, block_rows_;
};

// Attention of heads stored side by side in rows, the layout of linear layers.

/// Attention of q [N, L, H * D], k [N, S, H * D], v [N, S, H * E] and y [N, L, H * E], f32 on a CPU, without
/// a mask. A block has all heads of a sample, and no head is moved in memory.
class AttentionSamples {
 public:
  /// Returns whether the class supports these sizes. The numbers of key and query heads must be equal.
  [[nodiscard]] static bool takes(const AttentionShape& shape, bool causal, Device device, DType dtype);

  AttentionSamples(const AttentionShape& shape, bool causal, double scale);
  [[nodiscard]] Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v) const;
  /// Returns dq, dk and dv, as AttentionBlocks.
  [[nodiscard]] std::vector<Tensor> backward(const Tensor& dy, const Tensor& q, const Tensor& k,
                                             const Tensor& v, DType factors) const;

 private:
  struct Part;
  /// Computes out = a b for each head. `transpose_a` and `transpose_b` mark transposed factors.
  void multiply(const Part& a, bool transpose_a, const Part& b, bool transpose_b, Part out) const;
  [[nodiscard]] Tensor weights(std::int64_t sample, const Tensor& q, const Tensor& k) const;

  AttentionShape shape_;
  AttentionRows rows_;
};

/// Applies scaled_dot_product_attention to heads side by side: y [N, L, H * E] for q [N, L, H * D], k [N, S,
/// K * D] and v [N, S, K * E]. The result has the bits of the version with transposes, which is used if
/// neither TiledAttention nor AttentionSamples supports the sizes and the device. Not for a trace, which
/// shows the transposes.
[[nodiscard]] Variable attention_of_rows(const Variable& q, const Variable& k, const Variable& v,
                                         std::int64_t heads, const ops::AttentionOptions& options);
/// Applies `attention_of_rows` to q, k and v side by side in one tensor [N, L, H * D + 2 * K * D]. The tensor
/// gets one gradient.
[[nodiscard]] Variable attention_of_packed(const Variable& packed, std::int64_t heads, std::int64_t kv_heads,
                                           const ops::AttentionOptions& options);
/// Applies ops::rotary to the first `heads` heads of `width` channels in each row of x [N, L, C]. All
/// channels of a head are rotated. Not for a trace.
[[nodiscard]] Variable rotary_of_rows(const Variable& x, std::int64_t heads, std::int64_t width,
                                      const ops::Rotary& options);

}  // namespace fq::detail
