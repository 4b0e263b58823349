#include "fakequant/cli/evaluation.h"

#include <algorithm>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/cli/tables/sample_noun.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/loop/detail/batch_outputs.h"
#include "fakequant/train/ranks/shares.h"

namespace fq::cli {
namespace {

class BatchProgress {
 public:
  BatchProgress(Output& output, const std::string& label, const Dataset& data)
      : output_(output), label_(label), samples_(sample_noun(data)), total_(data.size()) {}

  [[nodiscard]] std::int64_t done() const { return done_; }
  void add(std::int64_t samples) {
    done_ += samples;
    const double rate = double(done_) / std::max(watch_.seconds(), 1e-9);
    output_.progress({label_, done_, total_, 0, -1, rate, double(total_ - done_) / rate, samples_});
  }

 private:
  Output& output_;
  const std::string& label_;
  const Stopwatch watch_;
  const std::string samples_;
  std::int64_t total_, done_ = 0;
};

}  // namespace

void for_each_output(const Network& network, std::shared_ptr<const Dataset> data, std::int64_t batch,
                     const std::function<void(const Tensor&, const Tensor&)>& visit, Output& output,
                     const std::string& label) {
  const GracefulStop stop;
  DataLoader loader(data, share_of_rank({.batch_size = batch, .shuffle = false}, *run_ranks()));
  BatchProgress progress(output, label, *data);
  const auto next = [&](const Tensor& logits, const Tensor& labels) {
    if (stop_requested()) return false;
    visit(logits, labels);
    progress.add(std::min(batch, data->size() - progress.done()));
    return true;
  };
  if (!fq::detail::for_each_output(network.module(), loader, run_ranks().get(), next))
    throw Interrupted(label);
}

void for_each_batch(const Network& network, std::shared_ptr<const Dataset> data, std::int64_t batch,
                    const std::function<void(const Batch&, const Variable&)>& visit, Output& output,
                    const std::string& label) {
  const NoGrad no_grad;
  const GracefulStop stop;
  network.module().eval();
  BatchProgress progress(output, label, *data);
  DataLoader loader(std::move(data), {.batch_size = batch, .shuffle = false});
  while (auto next = loader.next()) {
    if (stop_requested()) throw Interrupted(label);
    visit(*next, (network.module())(Variable(next->x.to(network.module().device()))));
    progress.add(next->size());
  }
}

void predict_parts(const Network& network, const std::shared_ptr<const Dataset>& data, std::int64_t batch,
                   const PredictionOptions& options, const std::function<void(const StateDict&)>& use,
                   Output& output, const std::string& label) {
  PredictionParts parts(network, options, use);
  if (options.inputs || options.codes)
    for_each_batch(
        network, data, batch,
        [&](const Batch& samples, const Variable& y) { parts.add(samples.x, y.tensor()); }, output, label);
  else
    for_each_output(
        network, data, batch, [&](const Tensor& y, const Tensor&) { parts.add({}, y); }, output, label);
  parts.finish();
}

}  // namespace fq::cli
