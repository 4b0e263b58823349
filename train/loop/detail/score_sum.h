#pragma once

/// Predictions, loss, accuracy and metrics of batches.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/core/variable.h"
#include "fakequant/train/loop/evaluate.h"
#include "fakequant/train/metrics.h"

namespace fq::detail {

/// Whether outputs are [N, C] and labels classes [N]: then there are right answers.
[[nodiscard]] bool is_classes(const Tensor& outputs, const Tensor& labels);

/// Returns the predicted class of each row of `logits` [N, C]: i64 [N] on the device of the logits. Does not
/// wait for a GPU.
[[nodiscard]] Tensor predicted_classes(const Tensor& logits);
/// Returns how many of the classes `predicted`, i64 [N] on the host, are the label.
[[nodiscard]] std::int64_t count_equal(const Tensor& predicted, const Tensor& labels);

/// The one way in which scores are summed: batches in their order, in double.
class ScoreSum {
 public:
  /// By cross entropy where no loss is given.
  explicit ScoreSum(Loss loss = {}, const std::vector<std::string>& metrics = {},
                    const MetricOptions& options = {});

  /// Logits [N, C] and labels [N], or what the loss takes. Throws NumericError for a loss that is NaN.
  void add(const Variable& logits, const Tensor& labels);
  /// Zeros where nothing was added.
  [[nodiscard]] Evaluation mean() const;

 private:
  /// Throws NumericError naming the sample.
  [[noreturn]] void refuse_nan(const Tensor& outputs) const;

  Loss of_;
  std::vector<std::pair<std::string, std::unique_ptr<Metric>>> metrics_;
  double loss_ = 0;
  bool answers_ = false;  // outputs and labels had right ones
  std::int64_t correct_ = 0, count_ = 0;
};

}  // namespace fq::detail
