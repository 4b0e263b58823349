#include "fakequant/train/loop/detail/score_sum.h"

#include <cmath>
#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/error.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/train/loop/detail/finite.h"

namespace fq::detail {

bool is_classes(const Tensor& outputs, const Tensor& labels) {
  return labels.dtype() == DType::i64 && labels.rank() == 1 && outputs.rank() == 2;
}

Tensor predicted_classes(const Tensor& logits) {
  const Tensor scores = logits.dtype() == DType::f64 ? logits : logits.to(DType::f32);
  Tensor out = Tensor::empty({scores.dim(0)}, DType::i64, scores.device());
  run(scores.device(), &Kernels::predictions, scores, out);
  return out;
}

std::int64_t count_equal(const Tensor& predicted, const Tensor& labels) {
  const Tensor host = labels.to(Device::cpu());
  const auto* label = host.data<std::int64_t>();
  return std::inner_product(label, label + host.numel(), predicted.data<std::int64_t>(), std::int64_t{0},
                            std::plus<>(), std::equal_to<>());
}

ScoreSum::ScoreSum(Loss loss, const std::vector<std::string>& metrics, const MetricOptions& options)
    : of_(std::move(loss)) {
  for (const auto& name : metrics) metrics_.emplace_back(name, make_metric(name, options));
}

void ScoreSum::add(const Variable& logits, const Tensor& labels) {
  const Tensor own = labels.to(logits.device());
  const Variable floats = logits.as_float();
  const Variable loss = of_ ? of_(floats, own) : ops::cross_entropy(floats, own);
  const double value = loss.item();
  if (std::isnan(value)) refuse_nan(floats.tensor());
  loss_ += value * static_cast<double>(labels.dim(0));
  if (is_classes(floats.tensor(), labels)) {
    answers_ = true;
    correct_ += count_correct(floats.tensor(), labels);
  }
  for (const auto& [name, metric] : metrics_) metric->add(floats.tensor(), labels);
  count_ += labels.dim(0);
}

void ScoreSum::refuse_nan(const Tensor& outputs) const {
  const auto found = find_not_finite({{"outputs", outputs}});
  if (!found)
    throw NumericError(
        fmt::format("[evaluate] the loss of samples {} to {} is NaN, and their outputs are not: look at "
                    "their labels",
                    count_, count_ + outputs.dim(0) - 1));
  throw NumericError(fmt::format(
      "[evaluate] the outputs for sample {} have {}: look whether that sample is finite, and whether the "
      "weights are of a run that diverged",
      count_ + found->index / (outputs.numel() / outputs.dim(0)), found->value));
}

Evaluation ScoreSum::mean() const {
  Evaluation out;
  out.count = count_;
  out.correct = correct_;
  if (count_ == 0) return out;
  out.loss = loss_ / static_cast<double>(count_);
  out.accuracy = static_cast<double>(correct_) / static_cast<double>(count_);
  for (const auto& [name, metric] : metrics_) out.metrics.emplace_back(name, metric->value());
  out.score = answers_ ? out.accuracy : -out.loss;
  if (!metrics_.empty()) out.score = (higher_is_better(metrics_[0].first) ? 1 : -1) * out.metrics[0].second;
  return out;
}

}  // namespace fq::detail
