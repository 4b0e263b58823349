#pragma once

/// Sums, means and extremes along axes.
///
///     const Variable each = ops::mean(ops::pow(ops::sub(y, target), 2.0), {1});  // [N, C] to [N]
///     const Variable loss = ops::sum(ops::multiply(each, weights));              // rank 0
///
/// f32 or f64, read as floats and joined in f64, in an order that the shape alone decides. `axes`, negative
/// ones from the back, are those that go, none meaning all; with `keep_axes` they stay, of size 1. Row-major.
/// Throw ArgumentError for an axis that is not there or is named twice.

#include <vector>

#include "fakequant/core/variable.h"

namespace fq::ops {

[[nodiscard]] Variable sum(const Variable& x, const std::vector<int>& axes = {}, bool keep_axes = false);
/// The sum over the number of elements that it is of; 0 of none.
[[nodiscard]] Variable mean(const Variable& x, const std::vector<int>& axes = {}, bool keep_axes = false);
/// The largest, the smallest; NaN wins. Equal ones share the gradient. Throw ArgumentError where there is no
/// element to choose.
[[nodiscard]] Variable max(const Variable& x, const std::vector<int>& axes = {}, bool keep_axes = false);
[[nodiscard]] Variable min(const Variable& x, const std::vector<int>& axes = {}, bool keep_axes = false);

}  // namespace fq::ops
