#pragma once

/// Attention on a GPU, whose scores never leave the processor.

#include <optional>
#include <string_view>

#include "fakequant/core/backend/attention_rows.h"
#include "fakequant/core/ops/attention.h"
#include "fakequant/core/ops/detail/operator.h"

namespace fq::detail {

/// Arguments of attention as an operator.
struct TiledAttention {
  AttentionShape shape;
  AttentionRows rows;
  /// Whether heads lie side by side: [N, L, H * D] instead of [N, H, L, D]. The kernels read both in place.
  bool side_by_side;
  Tensor mask;    ///< may be undefined
  DType factors;  ///< of the products in backward: f32, or a type of fewer bits
  std::optional<AttentionDropout> dropout = {};

  /// Returns whether the device has the kernels, and they support the sizes.
  [[nodiscard]] static bool takes(const AttentionShape& sizes, Device device, DType dtype);

  /// Returns y, recorded under the name `op`. Saves q, k, v, y and one number per row for backward. `inputs`
  /// are the variables of the record.
  [[nodiscard]] Variable apply(std::string_view op, const Floats& q, const Floats& k, const Floats& v,
                               const std::vector<Variable>& inputs, Attributes attributes) const;

 private:
  [[nodiscard]] HeadRows heads(const Tensor& x, const Shape& sizes) const;
  [[nodiscard]] AttentionInputs arguments(const Tensor& q, const Tensor& k, const Tensor& v) const;
  [[nodiscard]] std::vector<Tensor> backward(const AttentionInputs& inputs, const Tensor& y,
                                             const Tensor& log_sums, PendingGradient dy) const;
};

/// Returns scaled_dot_product_attention with dropout of the weights, with 0 < dropout < 1. It drops the same
/// weights as ops::dropout of the tensor of weights [N, H, L, S], and backward generates the mask again.
/// Returns no value unless `TiledAttention::takes` holds. Also returns no value in a trace, which shows the
/// operators.
[[nodiscard]] std::optional<Variable> attention_with_dropout(const Variable& q, const Variable& k,
                                                             const Variable& v, double dropout,
                                                             const ops::AttentionOptions& options,
                                                             const Variable& mask);

}  // namespace fq::detail
