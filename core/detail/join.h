#pragma once

/// Putting tensors side by side and taking them apart, for whole elements of any byte size.

#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::detail {

/// Concatenation along a logical axis; the layout is that of the first part. Types of 8 bits and more, and u1.
[[nodiscard]] Tensor join(const std::vector<Tensor>& parts, int axis);
/// Elements [begin, end) along a logical axis, as a new tensor in the same layout. Types of 8 bits and more, u1.
[[nodiscard]] Tensor cut(const Tensor& x, int axis, std::int64_t begin, std::int64_t end);

}  // namespace fq::detail
