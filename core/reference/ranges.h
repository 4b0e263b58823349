#pragma once

/// Smallest and largest element of each block; not a public header.

#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::detail {

struct Ranges {
  std::vector<float> lower, upper;  ///< one a block, row-major
};
/// Of a tensor of any float type and layout; a block with a NaN has NaN for both. Throws ArgumentError when
/// there is no element.
[[nodiscard]] Ranges block_ranges(const Tensor& x, const Shape& block, const char* function);

}  // namespace fq::detail
