#pragma once

/// Metrics of the quality of outputs, in addition to the loss.
///
///     const Evaluation found = evaluate(model, test, nullptr, loss, {"rmse", "r2"});
///     for (const auto& [name, value] : found.metrics) std::cout << name << ' ' << value << '\n';
///
/// | name | labels | definition |
/// | --- | --- | --- |
/// | accuracy | classes, binary | share of correct predictions |
/// | top2, top5, .. | classes | share of samples whose class is among the 2, 5, .. largest outputs |
/// | f1 | classes, binary | 2 TP / (2 TP + FP + FN), mean over classes that occur or are predicted |
/// | recall | classes, binary | TP / (TP + FN), mean over classes that occur (balanced accuracy) |
/// | iou | classes, binary | TP / (TP + FP + FN), mean as for f1 |
/// | auc | classes, binary | area under the ROC curve, classes one against the rest; ties count half |
/// | bpc | classes | bits per character: mean of -log2 of the softmax probability of the label; where
/// labels are tokens of several characters, the mean over the characters |
/// | perplexity | classes | 2 to the power of the mean bits per label |
/// | ler | sequences | label error rate: insertions, deletions and substitutions per label |
/// | exact | sequences | share of sequences without an error |
/// | mae, rmse | numbers | mean of |y - t|; root of the mean of (y - t)^2 |
/// | r2 | numbers | 1 - sum (y - t)^2 / sum (t - mean t)^2, mean over outputs whose target varies |
///
/// Classes: labels i64 [N, ..] of outputs [N, C, ..], C > 1. The prediction is the class with the largest
/// output, the first of equal ones. Ignores labels that are not classes.
///
/// Binary: labels with the shape of the outputs, or [N, ..] for outputs [N, 1, ..]. A label is true above
/// 1/2, and a prediction is true above 0. Each output along axis 1 is a class of its own.
///
/// Numbers: labels with the same shapes as binary labels. Results equal scikit-learn's functions of the same
/// names with average="macro".
///
/// Sequences: integer labels [N, S] of outputs [N, C, L], decoded with `ctc_decode` (train/losses.h). The
/// blank is class 0, for `ler36` and `exact36` class 36. The blank, and labels that are not classes, are
/// padding.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq {

/// Metric over all samples that were added. Use it from one thread at a time.
///
///     const std::unique_ptr<Metric> metric = make_metric("top5");
///     metric->add(model(x).tensor(), labels);
///     std::cout << metric->value() << '\n';
class Metric {
 public:
  Metric() = default;
  virtual ~Metric() = default;
  Metric(const Metric&) = delete;  // a running sum belongs to one object
  Metric& operator=(const Metric&) = delete;

  /// Adds the outputs (f32 or f64) and labels of a batch, on any device. Throws ArgumentError for labels of
  /// another kind than the metric requires.
  virtual void add(const Tensor& outputs, const Tensor& labels) = 0;
  /// Returns the metric over all samples so far. Returns NaN if it is undefined: without samples, or for the
  /// area under a curve with a single class.
  [[nodiscard]] virtual double value() const = 0;
};

/// Properties of the labels that metrics need.
struct MetricOptions {
  /// Number of characters of the token of each class, for bpc; empty for one character each.
  std::vector<std::int64_t> characters = {};
};

/// Returns the metric with a name of the table. Throws ArgumentError for an unknown name, with a suggestion.
[[nodiscard]] std::unique_ptr<Metric> make_metric(const std::string& name, const MetricOptions& options = {});
/// Returns whether a higher value is better: true except for bpc, perplexity, ler, mae and rmse.
[[nodiscard]] bool higher_is_better(const std::string& name);

}  // namespace fq
