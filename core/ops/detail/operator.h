#pragma once

/// What the operators share at their door.

#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/convert.h"
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
/// The same spec with other codes and no mask: gradients pass the quantizer that made the original.
[[nodiscard]] QuantizedTensor with_codes(const QuantizedTensor& x, Tensor codes);

/// The attributes when somebody traces, else none.
template <class F>
[[nodiscard]] Attributes traced(F&& make) {
  return recorder() != nullptr ? make() : Attributes{};
}

}  // namespace fq::detail
