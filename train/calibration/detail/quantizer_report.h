#pragma once

/// The report of one quantizer.

#include <string>

#include "fakequant/layers/quantize.h"
#include "fakequant/train/calibration/calibration_report.h"

namespace fq::detail {

/// Of an activation by what its calibrator holds, of a weight by the weight. Where it has no range, the one
/// that `method` would choose is in force.
[[nodiscard]] QuantizerReport quantizer_report(const NamedQuantizer& entry, const Variable& weight,
                                               const std::string& method, const AmaxOptions& options);

}  // namespace fq::detail
