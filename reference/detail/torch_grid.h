#pragma once

/// The grid of torch's affine fake quantization, fixed or learnt.

#include "fakequant/reference/detail/affine.h"

namespace fq::torch_ref {

/// quant_min to quant_max.
struct Range {
  std::int64_t lower, upper;
  [[nodiscard]] float lowest() const { return static_cast<float>(lower); }
  [[nodiscard]] float highest() const { return static_cast<float>(upper); }
};

/// The largest position that the reference's cast to a 64-bit integer keeps.
inline constexpr float channel_limit = 0x1.fffffep62f;

/// Position of the zero point: added after rounding, or, if it is a float, before rounding; for f32 fused
/// with the product. Values of float zero points are computed in double and rounded once.
enum class ZeroPointSum : unsigned char { outside, fused, summed };

struct Grid {
  Shape block;
  std::vector<detail::AffineRow> rows;
  Range range;
  float limit;  ///< positions above it become `range.lower`
  ZeroPointSum sum = ZeroPointSum::outside;
};

[[nodiscard]] Grid tensor_grid(const Tensor& x, double scale, std::int64_t zero_point, const Range& range);
/// One f32 scale and one zero point of any type for each index of `axis`.
[[nodiscard]] Grid channel_grid(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int axis,
                                const Range& range);

/// Throws ArgumentError for a type or a range that torch refuses.
void check_input(const Tensor& x, const Range& range, const char* function);
/// Throws ArgumentError for an axis that is not there and for a scale or zero point of the wrong shape.
void check_channels(const Tensor& x, const Tensor& scale, const Tensor& zero_point, int axis,
                    const char* function);

[[nodiscard]] Tensor fake_quantize(const Tensor& x, const Grid& grid);
/// For f64: positions in double; values in double with channels, else in float. Plain loops.
[[nodiscard]] Tensor fake_quantize_wide(const Tensor& x, const Grid& grid);
[[nodiscard]] Tensor gradient_wide(const Tensor& x, const Tensor& dy, const Grid& grid);

}  // namespace fq::torch_ref
