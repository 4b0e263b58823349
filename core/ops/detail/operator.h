#pragma once

/// Input checks and output records that all operators share.

#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/detail/moves.h"
#include "fakequant/core/tape.h"

namespace fq::detail {

/// An input converted to floats: the variable that receives the gradient, and its tensor.
struct Floats {
  Variable variable;
  Tensor tensor;
};

/// Converts `x` to floats. Throws ArgumentError if `x` is undefined or its floats are neither f32 nor f64.
[[nodiscard]] Floats floats(const Variable& x, std::string_view op);
/// Converts `x` to floats. Throws ArgumentError if the dtype or device differs from `first`.
[[nodiscard]] Floats matching_floats(const Variable& x, const Tensor& first, std::string_view op);
[[nodiscard]] Tensor empty_like(const Tensor& x);
[[nodiscard]] Tensor empty_like(const Tensor& x, Layout layout);
/// Returns whether x has integer codes with one scale. Such codes can be moved to any position.
[[nodiscard]] bool is_plain(const QuantizedTensor& x);
/// Returns whether the codes can be moved one by one: one scale, whole bytes.
[[nodiscard]] bool is_movable(const QuantizedTensor& x);
/// Returns a tensor with the same grid, other codes and no mask: the quantizer that made the original codes
/// masks the gradient.
[[nodiscard]] QuantizedTensor with_codes(const QuantizedTensor& x, Tensor codes);

/// Returns the attributes during a trace, else an empty list.
template <class F>
[[nodiscard]] Attributes traced(F&& make) {
  return recorder() != nullptr ? make() : Attributes{};
}

// Operators composed of other operators, which a trace shows as one.

/// Runs `compute`, which calls other operators, and reports the result to the trace as one operator `op`.
template <class F>
[[nodiscard]] Variable composite(std::string_view op, std::vector<Variable> inputs, Attributes attributes,
                                 F&& compute) {
  Variable y;
  {
    const ScopedValue<Recorder*> silent(context().recorder, nullptr);
    y = compute();
  }
  if (recorder() != nullptr) recorder()->record_op(op, inputs, y, std::move(attributes));
  return y;
}

/// Returns the sums that `x` transposes by `axes`, before any of them is rounded; undefined for other values
/// and during a trace. The gradient of a reader of the result does not pass the transpose.
[[nodiscard]] Variable before_transpose(const Variable& x, const std::vector<int>& axes);

// Operators that move elements, or compute weighted sums along an axis.

/// Records a move of x under the name of the operator. Codes of one scale stay codes, sums stay sums,
/// integers stay integers; other values are converted to floats. `x` is defined and the move fits its shape.
[[nodiscard]] Variable record_move(std::string_view op, const Variable& x, const Move& move,
                                   Attributes attributes);
/// Records a weighted sum of x along an axis, in the layout of x.
[[nodiscard]] Variable record_mix(std::string_view op, const Floats& x, int axis, AxisMix mix);
/// Returns the windows of adaptive pooling, which cover an axis of `from` elements evenly, with the weights
/// of their means.
[[nodiscard]] AxisMix adaptive_shares(std::int64_t from, std::int64_t to);

}  // namespace fq::detail
