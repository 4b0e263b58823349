#pragma once

/// Attention a block of rows at a time, so that no matrix of all scores is needed.

#include <vector>

#include "fakequant/core/backend/attention_rows.h"
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
class AttentionBlocks {
 public:
  AttentionBlocks(const AttentionShape& shape, const AttentionRows& rows, Device device);

  /// y of row-major q, k and v; `mask` may be undefined.
  [[nodiscard]] Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) const;
  /// dq, dk and dv, by products of factors of that type, the inputs' or bf16: probabilities are those of
  /// forward.
  [[nodiscard]] std::vector<Tensor> backward(const Tensor& dy, const Tensor& q, const Tensor& k,
                                             const Tensor& v, const Tensor& mask, DType factors) const;

 private:
  struct Block {
    std::int64_t group, groups, row, rows;  // rows of each of its groups
  };
  template <class F>
  void each(F&& f) const;
  /// The block's part of a tensor as [samples * kv_heads, rows of a group, elements].
  [[nodiscard]] Tensor queries_of(const Tensor& x, const Block& block) const;
  [[nodiscard]] Tensor keys_of(const Tensor& x, const Block& block) const;
  /// Probabilities [groups, rows, keys].
  [[nodiscard]] Tensor weights(const Tensor& q, const Tensor& k, const Tensor& mask,
                               const Block& block) const;

  AttentionShape shape_;
  AttentionRows rows_;
  std::int64_t group_rows_;
  bool apart_;
  std::int64_t block_groups_, block_rows_;
};

}  // namespace fq::detail
