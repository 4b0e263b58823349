#include "fakequant/train/loop/detail/evaluation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/error.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/train/loop/detail/finite.h"
#include "fakequant/train/ranks/detail/collectives.h"
#include "fakequant/train/ranks/shares.h"

namespace fq::detail {
namespace {

Tensor model_output(Module& model, const Batch& batch) try {
  return model(Variable(batch.x.to(model.device()))).tensor();
} catch (const NumericError& error) {
  const std::string found = not_finite_sample(batch);
  if (found.empty()) throw;
  throw NumericError(fmt::format("{}: {}", error.what(), found));
}

/// Returns the next batches, at most one per rank, in the order of the ranks.
std::vector<StateDict> next_turn(Module& model, DataLoader& loader, Communicator& ranks, std::int64_t count) {
  StateDict own;
  for (std::int64_t i = 0; i < count; ++i) {
    // `count` batches are left in the epoch, so that next() has one.
    const auto batch = loader.next();
    if (batch->passed_over > 0) continue;
    own.set("output", model_output(model, *batch));
    if (batch->y.defined()) own.set("labels", batch->y);
  }
  auto all = gather_states(ranks, own);
  // In the last turn, ranks without a batch send an empty state.
  all.resize(static_cast<std::size_t>(count));
  return all;
}

bool visit_shared(Module& model, DataLoader& loader, Communicator& ranks, const VisitOutput& visit) {
  check_share(loader.options(), ranks, ranks.size(), "evaluate");
  const std::int64_t size = ranks.size(), batches = loader.batches_per_epoch();
  // One turn per iteration: every rank evaluates one batch, then all outputs are exchanged.
  for (std::int64_t done = 0; done < batches; done += size) {
    std::vector<std::int64_t> stops{0};
    for (const auto& found : next_turn(model, loader, ranks, std::min(size, batches - done)))
      // All ranks visit all outputs in the order of the batches, so that sums have the bits of one process.
      if (!visit(found.at("output"), found.contains("labels") ? found.at("labels") : Tensor())) stops[0] = 1;
    // Each rank has its own stop flag; all leave the loop together.
    ranks.max(stops);
    if (stops[0] != 0) return false;
  }
  return true;
}

}  // namespace

bool is_classes(const Tensor& outputs, const Tensor& labels) {
  return labels.dtype() == DType::i64 && labels.rank() == 1 && outputs.rank() == 2;
}

Tensor predicted_classes(const Tensor& logits) {
  // The kernel reads f32 and f64 only; conversions from 16 bits are exact.
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
  // NaN outputs are found by the loss, without a pass over the outputs.
  if (std::isnan(value)) refuse_nan(floats.tensor());
  loss_ += value * static_cast<double>(labels.dim(0));
  if (is_classes(floats.tensor(), labels)) {
    has_classes_ = true;
    correct_ += count_correct(floats.tensor(), labels);
  }
  for (const auto& [name, metric] : metrics_) metric->add(floats.tensor(), labels);
  count_ += labels.dim(0);
}

void ScoreSum::refuse_nan(const Tensor& outputs) const {
  const auto found = find_not_finite({{"outputs", outputs}});
  if (!found)
    throw NumericError(
        fmt::format("[evaluate] the loss of samples {} to {} is NaN, but their outputs are finite: "
                    "check their labels",
                    count_, count_ + outputs.dim(0) - 1));
  throw NumericError(
      fmt::format("[evaluate] the outputs for sample {} have {}: check whether the sample is finite, and "
                  "whether the run of the weights diverged",
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
  out.score = has_classes_ ? out.accuracy : -out.loss;
  // The first metric decides the best epoch; a larger score is better.
  if (!metrics_.empty()) out.score = (higher_is_better(metrics_[0].first) ? 1 : -1) * out.metrics[0].second;
  return out;
}

bool visit_outputs(Module& model, DataLoader& loader, Communicator* ranks, const VisitOutput& visit) {
  const EvaluationMode mode(model);
  const NoGrad no_grad;
  loader.start_epoch(0);
  if (ranks != nullptr && ranks->size() > 1) return visit_shared(model, loader, *ranks, visit);
  while (const auto batch = loader.next())
    if (!visit(model_output(model, *batch), batch->y)) return false;
  return true;
}

}  // namespace fq::detail
