#pragma once

/// What torchao reduces by blocks.

#include "fakequant/reference/detail/ranges.h"

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
