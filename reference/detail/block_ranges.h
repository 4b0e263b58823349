#pragma once

/// Smallest and largest element of each block.

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::detail {

struct Ranges {
  std::vector<float> lower, upper;  ///< one a block, row-major
};
/// Ranges of a tensor of any float type and layout; a block with a NaN has NaN for both. Throws ArgumentError
/// when there is no element.
[[nodiscard]] Ranges block_ranges(const Tensor& x, const Shape& block, const char* function);

/// torch.minimum and torch.maximum of two numbers: a NaN on either side is the result.
inline float smaller(float a, float b) { return b < a || std::isnan(b) ? b : a; }
inline float larger(float a, float b) { return b > a || std::isnan(b) ? b : a; }

/// The largest magnitude; a NaN counts as the largest. 0 for no elements.
inline float largest_magnitude(const float* x, std::int64_t count) {
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<std::int32_t>(x[i]) & 0x7fffffff);
  return std::bit_cast<float>(largest);
}

}  // namespace fq::detail

// Block reductions of torchao.

namespace fq::torchao {

/// The block that torchao really reduces, all of the input for one of all ones, and the shapes of its
/// results.
struct Reduction {
  Shape block;
  Shape result;  ///< the axes that are neither reduced nor covered
  Shape kept;    ///< one size for each axis of the input
};
/// Throws ArgumentError for a block of another rank or one that does not divide.
[[nodiscard]] Reduction reduction(const Shape& input, const Shape& block_size, const char* function);
/// Throws ArgumentError unless `kept` can hold the results: a block of all ones leaves one.
void check_kept(const Reduction& r, const char* function);

}  // namespace fq::torchao
