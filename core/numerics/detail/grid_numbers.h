#pragma once

/// The parameters of rounding to codes, without the formulas: sources of vector code include this header
/// before their own formulas.
/// their own.

namespace fq::detail {

/// Ranges up to this one count as zero.
inline constexpr float least_amax = 0x1p-24f;

/// The grid of one channel. The clamp bounds are 0 if amax is too small to scale; all codes are then 0.
struct GridRow {
  float scale, lower, upper, amax, mask_lower;
};

/// A float grid: its largest number, smallest normal number and step, and the rounded value of a NaN.
struct ElementGrid {
  float max, min_normal, step, nan;
};

/// Rule for the scale of a range.
struct ScaleRule {
  enum class Kind : unsigned char {
    exact,   ///< amax / bound
    raised,  ///< the next power of two; amax is adjusted
    e4m3,    ///< a multiple of `unit`; amax is raised to the scale's range
    e8m0     ///< a power of two; amax is raised to the scale's range
  };
  Kind kind;
  float bound;
  float least;     ///< replaces a zero range, for exact and raised
  float unit = 1;  ///< for e4m3
};

/// The target grid of an accumulator.
struct SumReader {
  float lower, upper;  ///< limits of the codes
  float below, amax;   ///< limits of the mask: below < v <= amax if `open`, else below <= v <= amax
  bool open;
};

/// Parameters of an addition (DEPLOY §1), and the scales of the codes for their mask.
struct AdditionGrid {
  float ratio_a, ratio_b, fused;       ///< fl(s_a/s_y), fl(s_b/s_y) and F
  float offset_a, offset_b, offset_y;  ///< storage offsets of the file
  float scale_a, scale_b;
};

}  // namespace fq::detail
