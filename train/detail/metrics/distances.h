#pragma once

/// How far numbers are from what they should be.

#include "fakequant/train/metrics.h"

namespace fq::detail {

/// The mean distance, the root of the mean square of distances, and the mean over columns of the share of the
/// variation that is explained.
[[nodiscard]] std::unique_ptr<Metric> make_mae();
[[nodiscard]] std::unique_ptr<Metric> make_rmse();
[[nodiscard]] std::unique_ptr<Metric> make_r2();

}  // namespace fq::detail
