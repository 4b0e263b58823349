#pragma once

/// Ranges that calibration chose, changed before they are used.

#include <functional>
#include <string_view>

#include "fakequant/calib/calibration_rule.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// Replaces amax of the quantizers that have one and one of whose paths the pattern covers: each value is one
/// range of a tensor, channel or block. Returns how many quantizers were changed. Throws ArgumentError when
/// the pattern covers none, for an adjustment out of range, and naming the quantizer for a new range that is
/// negative, NaN or infinite; then nothing changed.
int postprocess_amax(Module& model, std::string_view pattern, const std::function<float(float)>& change);
int postprocess_amax(Module& model, const AmaxAdjustment& adjustment);

}  // namespace fq
