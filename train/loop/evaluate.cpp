#include "fakequant/train/loop/evaluate.h"

#include <functional>
#include <numeric>
#include <vector>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/backend/range_kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/join.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/loop/detail/answers.h"
#include "fakequant/train/loop/detail/batch_outputs.h"
#include "fakequant/train/loop/detail/score_sum.h"

namespace fq {

Tensor detail::answers_there(const Tensor& logits) {
  Tensor out = Tensor::empty({logits.dim(0)}, DType::i64, logits.device());
  run(logits.device(), &RangeKernels::answers, logits.dtype() == DType::f64 ? logits : logits.to(DType::f32),
      out);
  return out;
}

std::int64_t detail::count_equal(const Tensor& found, const Tensor& labels) {
  const Tensor right = labels.to(Device::cpu());
  const auto* label = right.data<std::int64_t>();
  return std::inner_product(label, label + right.numel(), found.data<std::int64_t>(), std::int64_t{0},
                            std::plus<>(), std::equal_to<>());
}

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
