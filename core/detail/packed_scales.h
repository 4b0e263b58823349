#pragma once

/// Scales in the type that they were rounded to.

#include "fakequant/core/quantized.h"

namespace fq {

/// The scales of a Grid: fl(value * unit) each.
struct PackedScales {
  Tensor values;   ///< f8_e4m3 where scales are of 4 significant bits, f8_e8m0 powers of two, else f32
  float unit = 1;  ///< of f8_e4m3; 1 for the others

  [[nodiscard]] bool defined() const noexcept { return values.defined(); }
  [[nodiscard]] std::int64_t nbytes() const noexcept;
};

/// Scales of that grid, in any order and shape, as what they are made of: f8_e4m3 c of scale = fl(c * unit),
/// or f8_e8m0 of a power of two. Throws ArgumentError where `scale_bits` is neither 4 nor 1.
[[nodiscard]] Tensor scale_codes(const Tensor& scales, const Grid& grid);
[[nodiscard]] PackedScales pack_scales(const Grid& grid);
/// A grid with the bits of those scales, whose amax is fl(scale * bound): codes made before decode as they
/// did. Throws ArgumentError as `check_scales`.
[[nodiscard]] Grid unpack_scales(const PackedScales& scales, Format format, Granularity granularity,
                                 std::string name = {});
/// Throws ArgumentError naming the quantizer unless every scale is of one of the three types, finite and
/// positive.
void check_scales(const PackedScales& scales, const std::string& name);

}  // namespace fq
