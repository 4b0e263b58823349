#pragma once

/// What is wrong with a quantizer, seen from its codes.
///
///     for (const auto& finding : quantizer_findings(model, batch.x)) std::cout << finding.text() << '\n';

#include <cstdint>
#include <string>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq {

class Module;

/// One fault of one quantizer.
struct QuantizerFinding {
  /// - `collapsed`: every value gets the same code though values differ, or more than 99 % of those that
  ///   are not 0 get code 0;
  /// - `zeros`: its range is zero, so that it passes floats (layers/quantizer/range.h);
  /// - `constant`: the input is the same number everywhere, so that nothing passes what comes after;
  /// - `dead_channels`: all codes of some output channels of a weight are 0, though the channel has weights
  ///   above a thousandth of the largest one (what a batch norm silenced does not count);
  /// - `clipped`: more than half of the values lie beyond the range. Formats of 2 bits do not count: their
  ///   best ranges clip as many.
  enum class Kind : unsigned char { collapsed, zeros, constant, dead_channels, clipped };

  std::string quantizer;  ///< its name
  Kind kind = Kind::collapsed;
  bool of_weight = false;
  std::int64_t count = 0;  ///< dead channels, clipped values, or those of the one code
  std::int64_t of = 0;     ///< channels, or values; those that are not 0 where they become 0
  double amax = 0;         ///< its largest range
  double largest = 0;      ///< largest magnitude it was given

  /// "fc.weight_quantizer: 3 of 10 channels have no code but 0".
  [[nodiscard]] std::string text() const;
};

/// The faults of the static quantizers that are on: of those of weights by the weights, of the others by what
/// they are given when the model runs on `x` in evaluation mode; undefined `x` leaves those out. Weights
/// first, at most one fault each. Quantizers in sequence, weights that are kept as codes (compress.h),
/// arithmetic `reference` and ranges that come from each input are passed over. The model stays as it was;
/// its ranges must be known, and `x` is on its device.
[[nodiscard]] std::vector<QuantizerFinding> quantizer_findings(Module& model, const Tensor& x = {});

}  // namespace fq
