#pragma once

/// What the searches among ranges share. This is not a public header.

#include <string_view>
#include <vector>

#include "fakequant/calib/calibrator.h"
#include "fakequant/core/format.h"
#include "fakequant/core/scalar.h"

namespace fq::detail {

/// The codes of the options. Throws ArgumentError for formats other than integers, (4,3) and (2,1).
[[nodiscard]] Format search_format(const CalibratorOptions& options, std::string_view function);

/// torch.linspace: from both ends to the middle. `count` 2 or more.
[[nodiscard]] std::vector<float> linspace(float first, float last, int count);

/// A candidate: amax * multiple, at most the largest float.
[[nodiscard]] FQ_HD float multiple_of(float amax, float multiple) {
  return scalar::min_(amax * multiple, 0x1.fffffep127f);
}

}  // namespace fq::detail
