#pragma once

/// Loss and accuracy while batches come in.

#include <cstdint>
#include <utility>

#include "fakequant/core/variable.h"
#include "fakequant/train/loop/evaluate.h"

namespace fq::detail {

/// Whether outputs are [N, C] and labels classes [N]: then there are right answers.
[[nodiscard]] bool is_classes(const Tensor& outputs, const Tensor& labels);

/// The one way in which scores are summed: batches in their order, in double.
class ScoreSum {
 public:
  /// By cross entropy where no loss is given.
  explicit ScoreSum(Loss loss = {}) : of_(std::move(loss)) {}

  /// Logits [N, C] and labels [N], or what the loss takes.
  void add(const Variable& logits, const Tensor& labels);
  /// Zeros where nothing was added.
  [[nodiscard]] Evaluation mean() const;

 private:
  Loss of_;
  double loss_ = 0;
  std::int64_t correct_ = 0, count_ = 0;
};

}  // namespace fq::detail
