#pragma once

/// What the searches among ranges share.

#include <string_view>
#include <vector>

#include "fakequant/calib/calibrator.h"
#include "fakequant/core/format.h"

namespace fq::detail {

/// The codes of the options. Throws ArgumentError for formats other than integers, (4,3) and (2,1).
[[nodiscard]] Format search_format(const CalibratorOptions& options, std::string_view function);

/// torch.linspace: from both ends to the middle. `count` 2 or more.
[[nodiscard]] std::vector<float> linspace(float first, float last, int count);

}  // namespace fq::detail
