#pragma once

/// Squared errors and entropies by which calibrators compare ranges, for every vector instruction set.

#include <cstddef>
#include <span>
#include <vector>

#include "fakequant/core/format.h"

namespace fq::cpu {

/// errors[k] += sum of (y - x)^2, y = x fake quantized with amax[k] by ModelOpt's formula: integers, E4M3, or
/// E2M1 with scale = amax / 6. Squares of 64 elements are added in f32, such sums in double, in their order:
/// the bits are the same on every processor. Errors of integers of up to 8 bits are taken as parts of a step,
/// q - fl(x * s), which is within 2^-24 * 255 steps of y - x. `x` and `amax` finite.
void add_squared_errors(std::span<const float> x, std::span<const float> amax, const Format& format,
                        double* errors);

/// ModelOpt's fake quantization by one range.
struct FakeQuantRule {
  bool integer = true;
  float scale = 1, divisor = 1, lower = 0, upper = 0;  ///< of integers
  float inverse = 1;                                   ///< of E4M3, with `scale`
};

/// Bin centres that have counts, outer ones first from both ends: what clips and what is coarse both show
/// early in a sum. Padded with zeros to whole vectors.
struct ErrorPoints {
  ErrorPoints(const std::vector<float>& centres, const std::vector<double>& counts);
  std::vector<float> centres;
  std::vector<double> counts;
};

/// The sum of (fake_quant(c) - c)^2 * count in double, or once it passes `limit` any number above that.
[[nodiscard]] double squared_error(const ErrorPoints& points, const FakeQuantRule& rule, double limit);

/// Sums over the first k bins, for every k: of counts, and of bins that are not empty.
struct EntropySums {
  const double *counts, *filled;
};

/// The first `bins` bins cut into 2^levels_log2 levels (8 or more), level d up to bin ceil((d + 1) * bins /
/// levels): the sum of count * log(count / filled bins) of the levels that are not empty, up to rounding.
[[nodiscard]] double level_entropy(const EntropySums& sums, std::size_t bins, int levels_log2);

}  // namespace fq::cpu
