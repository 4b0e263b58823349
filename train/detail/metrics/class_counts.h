#pragma once

/// What is counted of classes, and of labels that are bits.

#include "fakequant/train/metrics.h"

namespace fq::detail {

/// The share of labels that are answered, of all rows or bits.
[[nodiscard]] std::unique_ptr<Metric> make_accuracy();
/// Means over the classes: 2 both / (there + answered), both / there, both / either.
[[nodiscard]] std::unique_ptr<Metric> make_f1();
[[nodiscard]] std::unique_ptr<Metric> make_recall();
[[nodiscard]] std::unique_ptr<Metric> make_iou();

}  // namespace fq::detail
