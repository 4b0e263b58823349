#include "fakequant/train/evaluate.h"

#include <vector>

#include "fakequant/core/check.h"
#include "fakequant/core/convert.h"
#include "fakequant/core/join.h"
#include "fakequant/layers/module.h"
#include "fakequant/train/score_sum.h"

namespace fq {
namespace {

/// Evaluation mode while it lives; writes nothing to a model that is in it already.
class EvaluationMode {
 public:
  explicit EvaluationMode(Module& model) : model_(model), was_training_(model.training()) {
    if (was_training_) model_.eval();
  }
  ~EvaluationMode() {
    if (was_training_) model_.train();
  }
  EvaluationMode(const EvaluationMode&) = delete;  // tied to its block
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  Module& model_;
  bool was_training_;
};

/// Calls `visit(batch, output)` until the epoch ends or it returns false.
template <class F>
void for_each_output(Module& model, DataLoader& loader, F&& visit) {
  const EvaluationMode mode(model);
  const NoGrad no_grad;
  const Device device = model.device();
  loader.start_epoch(0);
  while (const auto batch = loader.next())
    if (!visit(*batch, model(Variable(batch->x.to(device))))) return;
}

template <class T>
bool is_right(const T* row, std::int64_t classes, std::int64_t label) {
  for (std::int64_t c = 0; c < classes; ++c)
    if (!(c < label ? row[c] < row[label] : row[c] <= row[label])) return false;
  return true;
}

}  // namespace

std::int64_t count_correct(const Tensor& logits, const Tensor& labels) {
  const Tensor scores = logits.to(Device::cpu()), right = labels.to(Device::cpu());
  const std::int64_t classes = scores.dim(1);
  const auto* label = right.data<std::int64_t>();
  std::int64_t correct = 0;
  detail::visit_float(logits.dtype(), "count_correct", [&]<class T>(T) {
    const T* rows = scores.data<T>();
    for (std::int64_t n = 0; n < labels.numel(); ++n)
      correct += is_right(rows + n * classes, classes, label[n]) ? 1 : 0;
  });
  return correct;
}

Evaluation evaluate(Module& model, DataLoader& loader, const std::atomic<bool>* stop) {
  detail::ScoreSum sum;
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
