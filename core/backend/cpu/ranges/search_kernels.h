#pragma once

/// Squared errors and entropies for comparing ranges in calibrators, for every vector instruction set.

#include <cstddef>
#include <span>
#include <vector>

#include "fakequant/core/format.h"

namespace fq::cpu {

/// Adds to errors[k] the sum of (y - x)^2, where y is x fake quantized with amax[k] by ModelOpt's formula:
/// integers, E4M3, or E2M1 with scale = amax / 6. Squares of 64 elements are added in f32, and these sums in
/// double, in order: the bits are the same on every processor. For integers of up to 8 bits, errors are
/// measured in steps, q - fl(x * s), which differs from y - x by at most 2^-24 * 255 steps. `x` and `amax`
/// are finite.
void add_squared_errors(std::span<const float> x, std::span<const float> amax, const Format& format,
                        double* errors);

/// ModelOpt's fake quantization with one range.
struct FakeQuantRule {
  bool integer = true;
  float scale = 1, divisor = 1, lower = 0, upper = 0;  ///< for integers
  float inverse = 1;                                   ///< for E4M3, with `scale`
};

/// Non-empty bins by their centres, alternating from both ends to the middle: clipping errors and coarse
/// steps then both show early in a sum. Padded with zeros to whole vectors.
struct ErrorPoints {
  ErrorPoints(const std::vector<float>& centres, const std::vector<double>& counts);
  std::vector<float> centres;
  std::vector<double> counts;
};

/// Returns the sum of (fake_quant(c) - c)^2 * count in double. Once the sum exceeds `limit`, returns any
/// number above it.
[[nodiscard]] double squared_error(const ErrorPoints& points, const FakeQuantRule& rule, double limit);

/// Prefix sums over the first k bins, for every k: of counts, and of the number of non-empty bins.
struct EntropySums {
  const double *counts, *filled;
};

/// Divides the first `bins` bins into 2^levels_log2 levels (8 or more), where level d ends at bin ceil((d +
/// 1) * bins / levels). Returns the sum of count * log(count / filled bins) over the non-empty levels, up to
/// rounding.
[[nodiscard]] double level_entropy(const EntropySums& sums, std::size_t bins, int levels_log2);

}  // namespace fq::cpu
