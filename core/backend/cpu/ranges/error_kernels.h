#pragma once

/// Squared errors of fake quantization over a histogram, for every vector instruction set.

#include <cstddef>
#include <vector>

namespace fq::cpu {

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

}  // namespace fq::cpu
