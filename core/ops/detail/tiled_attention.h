#pragma once

/// Attention on a GPU, whose scores never leave the processor.

#include <optional>
#include <string_view>

#include "fakequant/core/backend/attention_rows.h"
#include "fakequant/core/ops/attention.h"
#include "fakequant/core/ops/detail/operator.h"

namespace fq::detail {

/// Memory order of q, k, v and their gradients. The kernels read and write all of them in place.
enum class HeadOrder : unsigned char {
  heads,   ///< [N, H, L, D]
  rows,    ///< heads side by side: [N, L, H * D]
  packed,  ///< q, k and v in one tensor: [N, L, H * D + K * D + K * E]
};

/// Arguments of attention as an operator.
struct TiledAttention {
  AttentionShape shape;
  AttentionRows rows;
  HeadOrder order;  ///< y of `packed` is in the order `rows`
  Tensor mask;      ///< may be undefined
  DType factors;    ///< of the products in backward: f32, or a type of fewer bits
  std::optional<AttentionDropout> dropout = {};

  /// Returns whether the device has the kernels, and they support the sizes.
  [[nodiscard]] static bool takes(const AttentionShape& sizes, Device device, DType dtype);

  /// Returns y, recorded under the name `op`. Saves q, k, v, y and one number per row for backward. `inputs`
  /// are the variables of the record. With the order `packed`, q, k and v are the same, and the only input.
  [[nodiscard]] Variable apply(std::string_view op, const Floats& q, const Floats& k, const Floats& v,
                               const std::vector<Variable>& inputs, Attributes attributes) const;

 private:
  [[nodiscard]] HeadRows heads(const Tensor& x, const Shape& sizes, std::int64_t first = 0) const;
  [[nodiscard]] AttentionInputs arguments(const Tensor& q, const Tensor& k, const Tensor& v) const;
  [[nodiscard]] std::vector<Tensor> backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                             const Tensor& y, const Tensor& log_sums,
                                             PendingGradient dy) const;
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
