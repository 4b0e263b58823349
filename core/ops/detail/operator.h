#pragma once

/// Checks of inputs and records of outputs that all operators share.

#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/detail/moves.h"
#include "fakequant/core/tape.h"

namespace fq::detail {

/// An input read as floats: the variable that gradients flow through and its tensor.
struct Floats {
  Variable variable;
  Tensor tensor;
};

/// Throws ArgumentError when `x` is undefined or its floats are neither f32 nor f64.
[[nodiscard]] Floats floats(const Variable& x, std::string_view op);
/// As `floats`; throws ArgumentError when the dtype or device is not that of `first`.
[[nodiscard]] Floats floats_like(const Variable& x, const Tensor& first, std::string_view op);
[[nodiscard]] Tensor empty_like(const Tensor& x);
[[nodiscard]] Tensor empty_like(const Tensor& x, Layout layout);
/// Codes of integers with one scale, which keep their meaning wherever they are moved.
[[nodiscard]] bool is_plain(const QuantizedTensor& x);
/// Codes that can be moved one by one: one scale, whole bytes.
[[nodiscard]] bool is_movable(const QuantizedTensor& x);
/// The same grid with other codes and no mask: gradients pass the quantizer that made the original.
[[nodiscard]] QuantizedTensor with_codes(const QuantizedTensor& x, Tensor codes);

/// The attributes when somebody traces, else none.
template <class F>
[[nodiscard]] Attributes traced(F&& make) {
  return recorder() != nullptr ? make() : Attributes{};
}

// Operators that are made of others, and are one in a trace.

/// What `compute` makes of the inputs by other operators, reported to the trace as one operator `op`.
template <class F>
[[nodiscard]] Variable composite(std::string_view op, std::vector<Variable> inputs, Attributes attributes,
                                 F&& compute) {
  Variable y;
  {
    const ScopedValue<Recorder*> silent(context().recorder, nullptr);
    y = compute();
  }
  if (recorder() != nullptr) recorder()->on_op(op, inputs, y, std::move(attributes));
  return y;
}

// Operators that move elements, or mix the elements of an axis.

/// Records the move of x under the operator's name: codes of one scale stay codes, sums stay sums,
/// integers integers, all else is read as floats. `x` is defined and the move fits its shape.
[[nodiscard]] Variable record_move(std::string_view op, const Variable& x, const Move& move,
                                   Attributes attributes);
/// Records the mix of x along an axis; in x's layout.
[[nodiscard]] Variable record_mix(std::string_view op, const Floats& x, int axis, AxisMix mix);
/// Windows of adaptive pooling, which cover an axis of `from` elements evenly, with the shares of their
/// means.
[[nodiscard]] AxisMix adaptive_shares(std::int64_t from, std::int64_t to);

}  // namespace fq::detail
