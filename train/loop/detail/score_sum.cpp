#include "fakequant/train/loop/detail/score_sum.h"

#include "fakequant/core/ops/loss.h"

namespace fq::detail {

void ScoreSum::add(const Variable& logits, const Tensor& labels) {
  const Tensor own = labels.to(logits.device());
  loss_ += ops::cross_entropy(logits.as_float(), own).item() * static_cast<double>(labels.numel());
  correct_ += count_correct(logits.tensor(), labels);
  count_ += labels.numel();
}

Evaluation ScoreSum::mean() const {
  Evaluation out;
  out.count = count_;
  out.correct = correct_;
  if (count_ == 0) return out;
  out.loss = loss_ / static_cast<double>(count_);
  out.accuracy = static_cast<double>(correct_) / static_cast<double>(count_);
  return out;
}

}  // namespace fq::detail
