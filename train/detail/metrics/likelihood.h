#pragma once

/// How probable the labels are by softmax(outputs).

#include "fakequant/train/metrics.h"

namespace fq::detail {

/// Bits for each character of the labels; two to their power.
[[nodiscard]] std::unique_ptr<Metric> make_bits_per_character(const MetricOptions& options);
[[nodiscard]] std::unique_ptr<Metric> make_perplexity();

}  // namespace fq::detail
