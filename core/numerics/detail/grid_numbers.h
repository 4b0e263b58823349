#pragma once

/// The numbers that codes are rounded with. Without the formulas: sources of vector code include it before
/// their own.

namespace fq::detail {

/// A range at or below it is that of zeros only.
inline constexpr float least_amax = 0x1p-24f;

/// One channel's grid. Clamp bounds are 0 where amax is too small to scale: such codes are 0.
struct GridRow {
  float scale, lower, upper, amax, mask_lower;
};

/// A grid of floats: its largest number, smallest normal number and step, and the rounded value of a NaN.
struct ElementGrid {
  float max, min_normal, step, nan;
};

/// How the scale of a quantizer comes from its range.
struct ScaleRule {
  enum class Kind : unsigned char {
    exact,   ///< amax / bound
    raised,  ///< to the next power of two, amax with it
    e4m3,    ///< a multiple of `unit`, amax not below what it holds
    e8m0     ///< a power of two, likewise
  };
  Kind kind;
  float bound;
  float least;     ///< what a range of zeros only is taken as: exact and raised
  float unit = 1;  ///< of e4m3
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
