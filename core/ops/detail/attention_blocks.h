#pragma once

/// Attention a block of rows at a time, so that no matrix of all scores is needed.

#include <vector>

#include "fakequant/core/backend/attention_rows.h"
#include "fakequant/core/ops/attention.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

struct AttentionShape {
  std::int64_t samples, heads, kv_heads, queries, keys, width, value_width;
  [[nodiscard]] Shape q() const { return {samples, heads, queries, width}; }
  [[nodiscard]] Shape k() const { return {samples, kv_heads, keys, width}; }
  [[nodiscard]] Shape v() const { return {samples, kv_heads, keys, value_width}; }
  [[nodiscard]] Shape y() const { return {samples, heads, queries, value_width}; }
};

/// Groups are the heads that share keys: the rows of their queries lie behind each other. A block is some
/// groups, or some rows of one, as many as scratch of a fixed size holds. On a CPU each of many groups is
/// made by one thread, whose scratch its own cache holds; how many are many does not depend on the threads.
/// There causal attention has blocks of few rows of one head, which read no key behind those that their last
/// row sees, whatever the samples: what is left out are products with probabilities of 0, which change no
/// sum.
class AttentionBlocks {
 public:
  /// With `all_keys` causal blocks leave none out, for tests.
  AttentionBlocks(const AttentionShape& shape, const AttentionRows& rows, Device device,
                  bool all_keys = false);

  /// Whether blocks of all heads of a sample are what these are made for: many samples, few rows.
  [[nodiscard]] bool may_be_samples() const noexcept;

  /// y of row-major q, k and v; `mask` may be undefined.
  [[nodiscard]] Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) const;
  /// dq, dk and dv, by products of factors of that type, the inputs' or bf16: probabilities are those of
  /// forward.
  [[nodiscard]] std::vector<Tensor> backward(const Tensor& dy, const Tensor& q, const Tensor& k,
                                             const Tensor& v, const Tensor& mask, DType factors) const;

 private:
  struct Block {
    std::int64_t group, groups, row, rows, keys;  // rows of each of its groups, and keys that these read
  };
  template <class F>
  void each(F&& f) const;
  [[nodiscard]] std::int64_t rows_from(std::int64_t row) const;
  [[nodiscard]] std::int64_t keys_of_rows(std::int64_t end) const;
  /// The block's part of a tensor as [samples * kv_heads, rows of a group, elements].
  [[nodiscard]] Tensor queries_of(const Tensor& x, const Block& block) const;
  [[nodiscard]] Tensor keys_of(const Tensor& x, const Block& block) const;
  /// Probabilities [groups, rows, the block's keys].
  [[nodiscard]] Tensor weights(const Tensor& q, const Tensor& k, const Tensor& mask,
                               const Block& block) const;

  /// Scores, or their gradients, times what belongs to the keys.
  void times_keys(const Tensor& scores, const Tensor& keys, Tensor& out) const;

  AttentionShape shape_;
  AttentionRows rows_;
  std::int64_t group_rows_;
  bool in_heads_, apart_, all_keys_;
  std::int64_t block_groups_, block_rows_;
};

// Attention of heads that lie side by side in rows, as linear layers give and take them.

/// AttentionBlocks of q [N, L, H * D], k [N, S, H * D], v [N, S, H * E] and y [N, L, H * E], f32 on a CPU,
/// without a mask: a block is all heads of a sample, of which none is moved.
class AttentionSamples {
 public:
  /// Whether it is made for such sizes, where there are as many heads of keys as of queries.
  [[nodiscard]] static bool takes(const AttentionShape& shape, bool causal, Device device, DType dtype);

  AttentionSamples(const AttentionShape& shape, bool causal, double scale);
  [[nodiscard]] Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v) const;
  /// dq, dk and dv, as those of AttentionBlocks.
  [[nodiscard]] std::vector<Tensor> backward(const Tensor& dy, const Tensor& q, const Tensor& k,
                                             const Tensor& v, DType factors) const;

 private:
  struct Part;
  /// out = a b of each head, `a_turned` or `b_turned` ones transposed.
  void multiply(const Part& a, bool a_turned, const Part& b, bool b_turned, Part out) const;
  [[nodiscard]] Tensor weights(std::int64_t sample, const Tensor& q, const Tensor& k) const;

  AttentionShape shape_;
  AttentionRows rows_;
};

/// scaled_dot_product_attention of heads side by side: y [N, L, H * E] of q [N, L, H * D], k [N, S, H * D]
/// and v [N, S, H * E], with the bits that it has between transposes, which it is made of where sizes or
/// processor ask for it. Not for a trace, which has the transposes.
[[nodiscard]] Variable attention_of_rows(const Variable& q, const Variable& k, const Variable& v,
                                         std::int64_t heads, const ops::AttentionOptions& options);

}  // namespace fq::detail
