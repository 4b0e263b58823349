#pragma once

/// How high the outputs of the labels stand among others.

#include "fakequant/train/metrics.h"

namespace fq::detail {

/// The share of rows whose label is among the `k` largest outputs.
[[nodiscard]] std::unique_ptr<Metric> make_top_k(std::int64_t k);
/// The mean over the classes of the area under the ROC curve.
[[nodiscard]] std::unique_ptr<Metric> make_auc();

}  // namespace fq::detail
