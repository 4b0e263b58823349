#pragma once

/// What kernels of ranges read and return, on any device: a tensor as one row of elements per range, both
/// ends of its values, and the bins of a histogram.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// Returns the kept axes counted from the front, sorted; none when every axis is kept. Throws ArgumentError
/// for an axis that the tensor does not have, or that is named twice.
[[nodiscard]] std::vector<int> kept_axes(const Axes& kept, int rank, std::string_view function);
/// Returns `shape` with 1 for the other axes; rank 0 when that is one element.
[[nodiscard]] Shape range_shape(const Shape& shape, const std::vector<int>& axes);

struct RangeRows {
  Tensor values;  ///< [ranges, elements], row-major; shares storage where the kept axes come first
  Shape shape;    ///< of the ranges, as `range_shape`

  [[nodiscard]] std::int64_t count() const { return values.dim(0); }
  [[nodiscard]] std::int64_t length() const { return values.dim(1); }
  [[nodiscard]] const float* row(std::int64_t r) const { return values.data<float>() + r * length(); }
};
/// `x` f32, not empty, any layout.
[[nodiscard]] RangeRows range_rows(const Tensor& x, const Axes& kept, std::string_view function);

struct ValueRange {
  float largest;  ///< of the magnitudes; NaN when there is one
  float minimum;  ///< the smallest element, a zero without its sign; unspecified when there is a NaN
};

/// |x| belongs to bin min(int(fl(fl(|x| * factor) / divisor)), bins - 1). Magnitudes above `top`, and zeros
/// if `skip_zeros`, are not counted.
struct BinRule {
  float factor = 1;
  float divisor = 1;
  float top = 0;
  bool skip_zeros = false;

  /// The smallest magnitude that counts.
  [[nodiscard]] float lowest() const { return skip_zeros ? std::numeric_limits<float>::denorm_min() : 0.0f; }
};

/// The message for a range that is NaN or infinite.
[[nodiscard]] std::string not_finite_text(bool nan, std::string_view function);
/// Throws NumericError with that message when `amax` is NaN or infinite.
void check_finite(float amax, std::string_view function);

/// Returns a copy of a saved amax. Throws ArgumentError unless it is f32, finite and not negative.
[[nodiscard]] Tensor loaded_amax(const Tensor& saved, std::string_view function);

}  // namespace fq::detail
