#pragma once

/// A tensor as one row of elements a range, on any device, and sums over rows on the CPU.

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "fakequant/core/descriptor_fields.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// The kept axes counted from the front, sorted; none when every axis is kept. Throws ArgumentError for an
/// axis that the tensor does not have, or one that is named twice.
[[nodiscard]] std::vector<int> kept_axes(const Axes& kept, int rank, std::string_view function);
/// Those axes of `shape`, 1 for the others; rank 0 when that is one element.
[[nodiscard]] Shape range_shape(const Shape& shape, const std::vector<int>& axes);

struct Rows {
  Tensor values;  ///< [ranges, elements], row-major; shares storage where the kept axes come first
  Shape shape;    ///< of the ranges, as `range_shape`

  [[nodiscard]] std::int64_t count() const { return values.dim(0); }
  [[nodiscard]] std::int64_t length() const { return values.dim(1); }
  [[nodiscard]] const float* row(std::int64_t r) const { return values.data<float>() + r * length(); }
};
/// `x` f32, not empty, any layout.
[[nodiscard]] Rows rows(const Tensor& x, const Axes& kept, std::string_view function);

/// Adds to sums[r * width ..] what `part(r, x, count, out)` adds to `out`, `width` numbers that are 0 before,
/// for every part of row r. Parts, of up to 4096 elements, are taken in parallel and added in their order.
/// Memory: 8 * width bytes for each of up to 4096 parts.
using RowPart = std::function<void(std::int64_t r, const float* x, std::int64_t count, double* out)>;
void add_row_sums(const Rows& rows, std::int64_t width, double* sums, const RowPart& part);

}  // namespace fq::cpu
