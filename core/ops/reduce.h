#pragma once

/// Sums, means and extremes along axes.
///
///     const Variable each = ops::mean(ops::pow(ops::sub(y, target), 2.0), {1});  // [N, C] to [N]
///     const Variable loss = ops::sum(ops::multiply(each, weights));              // rank 0
///
/// Inputs are f32 or f64, read as floats; elements are joined in f64, in an order that the shape alone
/// decides. `axes`, negative ones from the back, are those that go, and none means all; with `keep_axes` they
/// stay, of size 1, so that the result broadcasts against x. Results are row-major and have x's dtype. All
/// throw ArgumentError for an axis that is not there or is named twice.

#include <vector>

#include "fakequant/core/variable.h"

namespace fq::ops {

/// The sum of the elements; 0 where there are none. Each of them gets dy.
[[nodiscard]] Variable sum(const Variable& x, const std::vector<int>& axes = {}, bool keep_axes = false);
/// The sum over the number of elements that it is of; 0 where there are none.
[[nodiscard]] Variable mean(const Variable& x, const std::vector<int>& axes = {}, bool keep_axes = false);
/// The largest element; NaN wins. Equal ones share the gradient evenly. Throws ArgumentError where there is
/// no element to choose.
[[nodiscard]] Variable max(const Variable& x, const std::vector<int>& axes = {}, bool keep_axes = false);
/// The smallest element; all else is as for `max`.
[[nodiscard]] Variable min(const Variable& x, const std::vector<int>& axes = {}, bool keep_axes = false);

}  // namespace fq::ops
