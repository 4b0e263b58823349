#pragma once

/// The numbers that codes are rounded with; not a public header. Without the formulas: sources of vector code
/// include it before their own.

namespace fq::detail {

/// One channel's grid. Clamp bounds are 0 where amax is too small to scale: such codes are 0.
struct GridRow {
  float scale, lower, upper, amax, mask_lower;
};

/// The grid of whoever reads an accumulator.
struct SumReader {
  float lower, upper;  ///< of codes
  float below, amax;   ///< of the mask: below < v <= amax where `open`, else below <= v <= amax
  bool open;
};

/// The numbers of DEPLOY §1 add, and the scales of the codes for their mask.
struct AdditionGrid {
  float ratio_a, ratio_b, fused;       ///< fl(s_a/s_y), fl(s_b/s_y) and F
  float offset_a, offset_b, offset_y;  ///< storage offsets of the file
  float scale_a, scale_b;
};

}  // namespace fq::detail
