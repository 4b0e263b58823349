#pragma once

/// Attention of heads that lie side by side in rows, as linear layers give and take them.

#include "fakequant/core/backend/attention_rows.h"
#include "fakequant/core/ops/attention.h"
#include "fakequant/core/ops/detail/attention_blocks.h"

namespace fq::detail {

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
