#pragma once

/// Loss and accuracy while batches come in.

#include <cstdint>

#include "fakequant/core/variable.h"
#include "fakequant/train/loop/evaluate.h"

namespace fq::detail {

/// The one way in which scores are summed: batches in their order, in double.
class ScoreSum {
 public:
  /// Logits [N, C], labels [N].
  void add(const Variable& logits, const Tensor& labels);
  /// Zeros where nothing was added.
  [[nodiscard]] Evaluation mean() const;

 private:
  double loss_ = 0;
  std::int64_t correct_ = 0, count_ = 0;
};

}  // namespace fq::detail
