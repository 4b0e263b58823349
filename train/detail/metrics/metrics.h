#pragma once

/// Metrics by family, and ratios that may be undefined.

#include <cmath>
#include <cstdint>
#include <limits>

#include "fakequant/train/metrics.h"

namespace fq::detail {

/// Value of a metric without samples.
inline constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

[[nodiscard]] inline double ratio(std::int64_t a, std::int64_t b) {
  return b == 0 ? kUndefined : static_cast<double>(a) / static_cast<double>(b);
}

/// Returns the mean of the defined values of f(i), i < count.
template <class F>
[[nodiscard]] double defined_mean(std::size_t count, F&& f) {
  double sum = 0;
  std::int64_t defined = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = f(i);
    if (std::isnan(value)) continue;
    sum += value;
    ++defined;
  }
  return defined == 0 ? kUndefined : sum / static_cast<double>(defined);
}

/// Returns the share of correct predictions, of all rows or binary outputs.
[[nodiscard]] std::unique_ptr<Metric> make_accuracy();
/// Return means over the classes of 2 TP / (2 TP + FP + FN), TP / (TP + FN) and TP / (TP + FP + FN).
[[nodiscard]] std::unique_ptr<Metric> make_f1();
[[nodiscard]] std::unique_ptr<Metric> make_recall();
[[nodiscard]] std::unique_ptr<Metric> make_iou();

/// Return the bits per character of the labels, and 2 to the power of the bits per label.
[[nodiscard]] std::unique_ptr<Metric> make_bits_per_character(const MetricOptions& options);
[[nodiscard]] std::unique_ptr<Metric> make_perplexity();

/// Returns the share of rows whose label is among the `k` largest outputs.
[[nodiscard]] std::unique_ptr<Metric> make_top_k(std::int64_t k);
/// Returns the mean over the classes of the area under the ROC curve.
[[nodiscard]] std::unique_ptr<Metric> make_auc();

/// Return the mean absolute error, the root of the mean squared error, and the mean over columns of the share
/// of explained variance.
[[nodiscard]] std::unique_ptr<Metric> make_mae();
[[nodiscard]] std::unique_ptr<Metric> make_rmse();
[[nodiscard]] std::unique_ptr<Metric> make_r2();

/// Returns the number of edits per label.
[[nodiscard]] std::unique_ptr<Metric> make_label_error_rate(std::int64_t blank);
/// Returns the share of sequences without an edit.
[[nodiscard]] std::unique_ptr<Metric> make_exact_sequences(std::int64_t blank);

}  // namespace fq::detail
