#pragma once

/// Arguments and results of the range kernels on any device: a tensor as one row of elements per range, the
/// minimum and maximum of values, and histogram bins.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// Returns the kept axes counted from the front, sorted; an empty list if every axis is kept. Throws
/// ArgumentError for an axis that does not exist or is listed twice.
[[nodiscard]] std::vector<int> kept_axes(const Axes& kept, int rank, std::string_view function);
/// Returns `shape` with size 1 for the other axes; rank 0 if the result has one element.
[[nodiscard]] Shape range_shape(const Shape& shape, const std::vector<int>& axes);

struct RangeRows {
  Tensor values;  ///< [ranges, elements], row-major; shares storage if the kept axes come first
  Shape shape;    ///< shape of the ranges, as in `range_shape`

  [[nodiscard]] std::int64_t count() const { return values.dim(0); }
  [[nodiscard]] std::int64_t length() const { return values.dim(1); }
  [[nodiscard]] const float* row(std::int64_t r) const { return values.data<float>() + r * length(); }
};
/// Returns the rows of x: f32, not empty, any layout.
[[nodiscard]] RangeRows range_rows(const Tensor& x, const Axes& kept, std::string_view function);

struct ValueRange {
  float largest;  ///< largest magnitude; NaN if there is one
  float minimum;  ///< smallest element, zero without its sign; unspecified if there is a NaN
};

/// Assigns |x| to bin min(int(fl(fl(|x| * factor) / divisor)), bins - 1). Magnitudes above `top` are not
/// counted, and neither are zeros if `skip_zeros`.
struct BinRule {
  float factor = 1;
  float divisor = 1;
  float top = 0;
  bool skip_zeros = false;

  /// Returns the smallest magnitude that is counted.
  [[nodiscard]] float lowest() const { return skip_zeros ? std::numeric_limits<float>::denorm_min() : 0.0f; }
};

/// Returns the message for a range that is NaN or infinite.
[[nodiscard]] std::string not_finite_text(bool nan, std::string_view function);
/// Throws NumericError with this message if `amax` is NaN or infinite.
void check_finite(float amax, std::string_view function);

/// Returns a copy of a saved amax. Throws ArgumentError unless it is f32, finite and not negative.
[[nodiscard]] Tensor loaded_amax(const Tensor& saved, std::string_view function);

}  // namespace fq::detail
