#pragma once

/// Operators that move elements and compute nothing.
///
///     const Variable rows = ops::flatten(x);                            // [N, C, H, W] to [N, C*H*W]
///     const Variable both = ops::concat({x, x}, 1);                     // twice the channels
///     const Variable first = ops::slice(x, 0, 0, 1), last = ops::slice(x, 0, -1, x.dim(0));
///     const Variable padded = ops::pad(x, {{1, 1}, {1, 1}}, ops::PadMode::reflect);
///
/// They take f32 or f64, integers without gradient (token ids; not `concat`), codes, and sums not yet
/// rounded. Codes with one scale are moved with their spec (the gradient is moved back; the quantizer that
/// made the codes masks it); codes with several scales are read as floats. Sums stay sums: who reads them
/// rounds them before they are moved, with the bits that it would have given right behind the layer that made
/// them. Axes count from the front, negative ones from the back. All throw ArgumentError for shapes and axes
/// that do not fit.

#include <array>
#include <cstdint>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq::ops {

/// The same elements in logical row-major order in another shape; one size may be -1 and follows from the
/// others. The result is row-major, and for a row-major input it is a view: nothing is copied.
[[nodiscard]] Variable reshape(const Variable& x, Shape shape);
/// Axes from `start_axis` on joined to one, [N, C, H, W] to [N, C*H*W]. The order is C, H, W also where x is
/// channels_last, so that weights of the next layer mean the same.
[[nodiscard]] Variable flatten(const Variable& x, int start_axis = 1);
/// The output's axis i is x's axis `axes[i]`, each axis named once; row-major.
[[nodiscard]] Variable transpose(const Variable& x, const std::vector<int>& axes);

/// The parts side by side along `axis`, in the layout of the first; their other sizes must agree. Sums, with
/// a pending ReLU or without, give an Accumulator of all of them; codes of equal grids give such codes; any
/// other mixture is read as floats, of one dtype.
[[nodiscard]] Variable concat(const std::vector<Variable>& parts, int axis);
/// Parts of one shape side by side along a new axis before axis `axis` of them; row-major.
[[nodiscard]] Variable stack(const std::vector<Variable>& parts, int axis = 0);
/// Parts of those sizes along `axis`, in their order; the sizes must add up to that of the axis.
[[nodiscard]] std::vector<Variable> split(const Variable& x, const std::vector<std::int64_t>& sizes,
                                          int axis = 0);
/// Every `step`-th of the elements [begin, end) along `axis`, copied, in x's layout. A negative begin or end
/// counts from the back; nothing is clamped, so that a place outside of the axis is an error. A step is 1 or
/// more.
[[nodiscard]] Variable slice(const Variable& x, int axis, std::int64_t begin, std::int64_t end,
                             std::int64_t step = 1);
/// Element j along `axis` is x's element indices[j], in x's layout; negative ones count from the back. An
/// element that is taken several times gets the sum of the gradients.
[[nodiscard]] Variable index_select(const Variable& x, int axis, const std::vector<std::int64_t>& indices);
/// x repeated along its axes of size 1, and along new ones in front, to that shape; -1 keeps a size.
[[nodiscard]] Variable expand(const Variable& x, const Shape& shape);

/// What stands in the elements that are added: zeros or another constant, x mirrored at its border without
/// the border, the border repeated, or x from the other side.
enum class PadMode : unsigned char { constant, reflect, replicate, circular };
/// The mode's word in files and attributes: "constant", "reflect", "replicate" or "circular".
[[nodiscard]] const char* name(PadMode mode) noexcept;
/// x with elements added around it. `sizes` has those before and after each of the last axes, in the order of
/// the axes; negative ones cut off. A constant that is not 0 makes floats of codes and sums. `reflect` adds
/// fewer elements than an axis has, `circular` as many at most.
[[nodiscard]] Variable pad(const Variable& x, const std::vector<std::array<std::int64_t, 2>>& sizes,
                           PadMode mode = PadMode::constant, double value = 0.0);

/// [N, C*r*r, H, W] to [N, C, H*r, W*r], r the factor: channel c*r*r + i*r + j goes to pixels (i, j) of each
/// square (Shi et al., arXiv:1609.05158). The result is row-major.
[[nodiscard]] Variable pixel_shuffle(const Variable& x, std::int64_t factor);
/// The way back: [N, C, H*r, W*r] to [N, C*r*r, H, W].
[[nodiscard]] Variable pixel_unshuffle(const Variable& x, std::int64_t factor);

}  // namespace fq::ops
