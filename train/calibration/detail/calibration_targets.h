#pragma once

/// Which quantizers are to be calibrated, and how.

#include <map>
#include <vector>

#include "fakequant/layers/quantize.h"
#include "fakequant/train/calibration/calibrate.h"

namespace fq::detail {

/// A quantizer with the weight it quantizes, if it is a weight's.
struct CalibrationTarget {
  NamedQuantizer entry;
  Variable weight;
  [[nodiscard]] bool is_weight() const noexcept { return weight.defined(); }
};

/// The enabled quantizers that need a range and were not given it; with `keep_known` without those that have
/// one.
[[nodiscard]] std::vector<CalibrationTarget> calibration_targets(Module& model, bool keep_known);

/// The weight of each quantizer that is a weight's.
[[nodiscard]] std::map<const TensorQuantizer*, Variable> weights_of(Module& model);

/// Collects a tensor that is all there is to see, as often as the calibrator is to see it.
void collect_whole(TensorQuantizer& quantizer, const Tensor& x);

/// Throws ArgumentError for options out of range and rules that match nothing.
void check_options(Module& model, const CalibrateOptions& options);
/// By the last rule that matches, else by `method`, which is not for weights.
void set_methods(const std::vector<CalibrationTarget>& targets, const CalibrateOptions& options);
[[nodiscard]] AmaxOptions amax_options(const NamedQuantizer& entry, const CalibrateOptions& options);

}  // namespace fq::detail
