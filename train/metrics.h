#pragma once

/// Metrics: what tells people how good outputs are, beside the loss.
///
///     const Evaluation found = evaluate(model, test, nullptr, loss, {"rmse", "r2"});
///     for (const auto& [name, value] : found.metrics) std::cout << name << ' ' << value << '\n';
///
/// | name | of | what |
/// | --- | --- | --- |
/// | accuracy | classes, yes or no | the share of answers that are right |
/// | top2, top5, .. | classes | the share whose class is among so many largest outputs |
/// | f1 | classes, yes or no | 2 TP / (2 TP + FP + FN), the mean over classes that occur or are answered |
/// | recall | classes, yes or no | TP / (TP + FN), the mean over classes that occur (balanced accuracy) |
/// | iou | classes, yes or no | TP / (TP + FP + FN), the mean as of f1 |
/// | auc | classes, yes or no | area under the ROC curve, of classes one against the rest; ties count half |
/// | bpc | classes | bits a character: the mean of -log2 of the share that the softmax gives the label; where
/// labels are tokens of several characters, over the characters |
/// | perplexity | classes | 2 to the mean bits of a label |
/// | ler | sequences | label error rate: labels to put in, take out or replace, over those that there are |
/// | exact | sequences | the share that is read without an error |
/// | mae, rmse | numbers | the mean of |y - t|; the root of the mean of (y - t)^2 |
/// | r2 | numbers | 1 - sum (y - t)^2 / sum (t - mean t)^2, the mean over outputs whose target varies |
///
/// Classes are labels i64 [N, ..] of outputs [N, C, ..], C > 1; the answer is the largest output, the first
/// of equal ones; labels that are no class, as ignored ones, are left out. Yes or no are labels of the
/// outputs' shape, or [N, ..] for [N, 1, ..], true above 1/2; the answer is yes above 0; each output beside
/// the batch (axis 1) is a class of its own. Numbers are labels as for yes or no. The numbers are those of
/// scikit-learn's functions of the same names with average="macro".
///
/// Sequences are labels of integers [N, S] of outputs [N, C, L], read as `ctc_decode` does (train/losses.h);
/// the blank is class 0, of `ler36` and `exact36` class 36; labels that are no class, and the blank, fill
/// rows.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq {

/// One number of all samples that came in. For use by one thread at a time.
///
///     const std::unique_ptr<Metric> metric = make_metric("top5");
///     metric->add(model(x).tensor(), labels);
///     std::cout << metric->value() << '\n';
class Metric {
 public:
  Metric() = default;
  virtual ~Metric() = default;
  Metric(const Metric&) = delete;  // a sum under way
  Metric& operator=(const Metric&) = delete;

  /// Takes in outputs, f32 or f64, and labels of a batch, on any device. Throws ArgumentError for labels that
  /// are not what the metric is of.
  virtual void add(const Tensor& outputs, const Tensor& labels) = 0;
  /// The number so far. It is NaN where it is not defined: of no samples, of an area under a curve with one
  /// class alone.
  [[nodiscard]] virtual double value() const = 0;
};

/// What metrics have to know of the labels.
struct MetricOptions {
  /// For bpc: characters of the token that each class stands for; empty for one each.
  std::vector<std::int64_t> characters = {};
};

/// A metric by its name in the table. Throws ArgumentError for an unknown name, naming the nearest.
[[nodiscard]] std::unique_ptr<Metric> make_metric(const std::string& name, const MetricOptions& options = {});
/// Whether more is better, which is so for all but bpc, perplexity, ler, mae and rmse.
[[nodiscard]] bool higher_is_better(const std::string& name);

}  // namespace fq
