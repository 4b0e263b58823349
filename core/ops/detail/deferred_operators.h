#pragma once

/// Float operators on a GPU whose results their first reader computes (core/detail/deferred.h). The functions
/// return nullopt where an operator must be computed at once: on other devices, during a trace, and for other
/// types, layouts or inputs.

#include <memory>
#include <optional>
#include <string_view>

#include "fakequant/core/detail/deferred.h"
#include "fakequant/core/numerics/detail/activations.h"
#include "fakequant/core/ops/detail/operator.h"

namespace fq::detail {

/// Returns a + b, where one of both is sums of a product and the other has the same shape.
[[nodiscard]] std::optional<Variable> deferred_add(std::string_view op, const Variable& a, const Variable& b);

/// Returns f(x) of sums of a product, for functions that `activate_sums` computes. The backward pass reads x,
/// rounded to bf16 if the backward pass uses bf16.
[[nodiscard]] std::optional<Variable> deferred_activation(std::string_view op, const Variable& x,
                                                          const Activation& f);

/// Layer normalization or, with `rms`, RMS normalization of rows of `length` elements. `gamma` and `beta` may
/// be undefined.
struct RowNorm {
  std::int64_t length;
  Saved gamma, beta;
  double eps;
  bool rms;
};

/// Saved values of a normalization: the rows, and for each row the mean and the inverse deviation, or the
/// root of the mean square. They are known after the values are computed.
struct RowNumbers {
  std::optional<SavedFloats> x;
  Tensor mean, inverse;
  std::weak_ptr<Deferred> rows;  ///< sets the numbers
};

/// Whether `deferred_norm` accepts x.
[[nodiscard]] bool defers_norm(const Variable& x);
/// Returns the normalized rows of x, which is f32 or a deferred sum. They set `numbers` when they are
/// computed.
[[nodiscard]] Accumulator deferred_norm(const Variable& x, const RowNorm& norm,
                                        const std::shared_ptr<RowNumbers>& numbers);
/// Computes the rows for a backward pass that begins at them, before any reader.
void compute_unread(const RowNumbers& numbers);

}  // namespace fq::detail
