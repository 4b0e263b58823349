#include "fakequant/train/loop/evaluate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/detail/join.h"
#include "fakequant/layers/modules/detail/evaluation_mode.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/loop/detail/score_sum.h"

namespace fq {
namespace {

/// Calls `visit(batch, output)` until the epoch ends or it returns false.
template <class F>
void for_each_output(Module& model, DataLoader& loader, F&& visit) {
  const detail::EvaluationMode mode(model);
  const NoGrad no_grad;
  const Device device = model.device();
  loader.start_epoch(0);
  while (const auto batch = loader.next())
    if (!visit(*batch, model(Variable(batch->x.to(device))))) return;
}

template <class T>
std::int64_t answer(const T* row, std::int64_t classes) {
  if (std::any_of(row, row + classes, [](T value) { return std::isnan(value); })) return -1;
  return std::max_element(row, row + classes) - row;
}

}  // namespace

Tensor answers(const Tensor& logits) {
  const Tensor scores = logits.to(Device::cpu());
  const std::int64_t classes = scores.dim(1);
  Tensor out = Tensor::empty({scores.dim(0)}, DType::i64);
  auto* found = out.mutable_data<std::int64_t>();
  detail::visit_float(scores.dtype(), "answers", [&]<class T>(T) {
    const T* rows = scores.data<T>();
    for (std::int64_t n = 0; n < out.numel(); ++n) found[n] = answer(rows + n * classes, classes);
  });
  return out;
}

std::int64_t count_correct(const Tensor& logits, const Tensor& labels) {
  const Tensor found = answers(logits), right = labels.to(Device::cpu());
  const auto* label = right.data<std::int64_t>();
  return std::inner_product(label, label + right.numel(), found.data<std::int64_t>(), std::int64_t{0},
                            std::plus<>(), std::equal_to<>());
}

Evaluation evaluate(Module& model, DataLoader& loader, const std::atomic<bool>* stop, const Loss& loss,
                    const std::vector<std::string>& metrics, const MetricOptions& options) {
  detail::ScoreSum sum(loss, metrics, options);
  bool stopped = false;
  for_each_output(model, loader, [&](const Batch& batch, const Variable& logits) {
    FQ_CHECK(batch.y.defined(), "evaluate", "the data has no labels: use predict");
    sum.add(logits, batch.y);
    stopped = stop != nullptr && *stop;
    return !stopped;
  });
  Evaluation out = sum.mean();
  out.stopped = stopped;
  return out;
}

Tensor predict(Module& model, DataLoader& loader) {
  std::vector<Tensor> parts;
  for_each_output(model, loader, [&](const Batch&, const Variable& output) {
    parts.push_back(output.tensor().to(Device::cpu()).to(Layout::row_major));
    return true;
  });
  return detail::join(parts, 0);
}

}  // namespace fq
