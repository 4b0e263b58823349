#pragma once

/// Ranges of a tensor on the CPU. The results are the same for any number of threads.

#include <string>
#include <string_view>

#include "fakequant/core/blocks/granularity.h"
#include "fakequant/core/descriptor_fields.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// The largest |x| for each index of the kept axes: f32, the kept axes with 1 for the others, rank 0 when
/// that is one element or no axis is left to reduce. NaN and Inf come out as themselves. `x` f32, not empty,
/// any layout.
[[nodiscard]] Tensor amax(const Tensor& x, const Axes& kept, std::string_view function);

/// The largest |x| of each block: `out` f32 of by.scale_shape(x.shape()), in the order of the blocks in the
/// memory of x (BlockMap).
void block_amax(const Tensor& x, const Granularity& by, Tensor& out);

struct Range {
  float largest;  ///< of the magnitudes; NaN when there is one
  float minimum;  ///< the smallest element, a zero without its sign; unspecified when there is a NaN
};
/// Both in one pass over `x`, which is as above.
[[nodiscard]] Range range(const Tensor& x);

/// Throws NumericError when `amax`, or an element of it, is NaN or infinite, with this text.
[[nodiscard]] std::string not_finite_text(bool nan, std::string_view function);
void check_finite(float amax, std::string_view function);
void check_finite(const Tensor& amax, std::string_view function);

/// A copy of a saved amax. Throws ArgumentError unless it is f32, finite and not negative.
[[nodiscard]] Tensor loaded_amax(const Tensor& saved, std::string_view function);

}  // namespace fq::cpu
