#include "fakequant/train/loop/evaluate.h"

#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/moves.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/loop/detail/answers.h"
#include "fakequant/train/loop/detail/batch_outputs.h"
#include "fakequant/train/loop/detail/score_sum.h"

namespace fq {

Tensor answers(const Tensor& logits) { return detail::answers_there(logits).to(Device::cpu()); }

std::int64_t count_correct(const Tensor& logits, const Tensor& labels) {
  return detail::count_equal(answers(logits), labels);
}

Evaluation evaluate(Module& model, DataLoader& loader, const std::atomic<bool>* stop, const Loss& loss,
                    const std::vector<std::string>& metrics, const MetricOptions& options,
                    Communicator* ranks) {
  detail::ScoreSum sum(loss, metrics, options);
  const bool whole =
      detail::for_each_output(model, loader, ranks, [&](const Tensor& logits, const Tensor& labels) {
        FQ_CHECK(labels.defined(), "evaluate", "the data has no labels: use predict");
        sum.add(Variable(logits), labels);
        return stop == nullptr || !*stop;
      });
  Evaluation out = sum.mean();
  out.stopped = !whole;
  return out;
}

Tensor predict(Module& model, DataLoader& loader, Communicator* ranks) {
  std::vector<Tensor> parts;
  detail::for_each_output(model, loader, ranks, [&](const Tensor& output, const Tensor&) {
    parts.push_back(output.to(Device::cpu()).to(Layout::row_major));
    return true;
  });
  return detail::join(parts, 0);
}

}  // namespace fq
