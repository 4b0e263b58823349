#pragma once

/// Which quantizers are calibrated how, and what is done with their ranges afterwards.

#include <optional>
#include <string>

#include "fakequant/calib/calibrator.h"

namespace fq {

/// For the quantizers one of whose paths the pattern covers (`*` any run of characters, `?` one). Of several
/// the last one counts.
struct CalibrationRule {
  std::string pattern;
  std::string method = {};  ///< a calib_method; empty: that of the descriptor
  AmaxOptions amax = {};
};

/// amax = min(max(amax * multiply, minimum), maximum), then raised to a power of two.
struct AmaxAdjustment {
  std::string pattern;
  double multiply = 1;                 ///< more than 0
  std::optional<double> minimum = {};  ///< at least 0
  std::optional<double> maximum = {};  ///< at least the minimum
  bool pow2 = false;                   ///< 0 stays 0
};

}  // namespace fq
