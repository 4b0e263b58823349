#pragma once

/// Scales in the number type that they were rounded to.

#include "fakequant/core/quantized.h"

namespace fq {

/// Scales of a Grid. Each scale is fl(value * unit).
struct PackedScales {
  Tensor values;   ///< f8_e4m3 for scales of 4 significant bits, f8_e8m0 for powers of two, else f32
  float unit = 1;  ///< for f8_e4m3; 1 for the others

  [[nodiscard]] bool defined() const noexcept { return values.defined(); }
  [[nodiscard]] std::int64_t nbytes() const noexcept;
};

/// Returns the codes of scales of this grid, in any order and shape: f8_e4m3 c with scale = fl(c * unit), or
/// f8_e8m0 for powers of two. Throws ArgumentError if `scale_bits` is neither 4 nor 1.
[[nodiscard]] Tensor scale_codes(const Tensor& scales, const Grid& grid);
[[nodiscard]] PackedScales pack_scales(const Grid& grid);
/// Returns a grid with exactly these scales and amax = fl(scale * bound), so that existing codes decode to
/// equal values. Throws ArgumentError as `check_scales`.
[[nodiscard]] Grid unpack_scales(const PackedScales& scales, Format format, Granularity granularity,
                                 std::string name = {});
/// Throws ArgumentError that names the quantizer unless every scale has one of the three types and is finite
/// and positive.
void check_scales(const PackedScales& scales, const std::string& name);

}  // namespace fq
