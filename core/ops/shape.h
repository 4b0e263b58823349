#pragma once

/// Operators that move elements and compute nothing.
///
/// f32 or f64, integers without gradient (token ids; not `concat`), codes, and sums not yet rounded. Codes
/// with one scale are moved with their spec (the gradient is moved back; the quantizer that made the codes
/// masks it); codes with several scales are read as floats. Sums stay sums: who reads them rounds them before
/// they are moved, with the bits that it would have given right behind the layer that made them. Axes count
/// from the front, negative ones from the back. Throw ArgumentError for shapes and axes that do not fit.

#include <cstdint>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq::ops {

/// The same elements in logical row-major order in another shape; one size may be -1. Row-major; a view of a
/// row-major input.
[[nodiscard]] Variable reshape(const Variable& x, Shape shape);
/// Axes from `start_axis` on joined to one: [N, C, H, W] to [N, C*H*W], in the order C, H, W also where x is
/// channels_last.
[[nodiscard]] Variable flatten(const Variable& x, int start_axis = 1);
/// The output's axis i is x's axis `axes[i]`, each axis named once; row-major.
[[nodiscard]] Variable transpose(const Variable& x, const std::vector<int>& axes);
/// The parts side by side along `axis`, in the layout of the first; their other sizes must agree. Sums, with
/// a pending ReLU or without, give an Accumulator of all of them; codes of equal grids give such codes; any
/// other mixture is read as floats.
[[nodiscard]] Variable concat(const std::vector<Variable>& parts, int axis);
/// Elements [begin, end) along `axis`, copied, in x's layout; a negative begin or end counts from the back.
[[nodiscard]] Variable slice(const Variable& x, int axis, std::int64_t begin, std::int64_t end);

}  // namespace fq::ops
