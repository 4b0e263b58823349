#include "fakequant/train/loop/evaluate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/detail/join.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/loop/detail/batch_outputs.h"
#include "fakequant/train/loop/detail/score_sum.h"

namespace fq {
namespace {

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
