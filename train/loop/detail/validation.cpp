#include "fakequant/train/loop/detail/validation.h"

#include "fakequant/train/loop/average.h"
#include "fakequant/train/ranks/shares.h"

namespace fq::detail {

Validation::Validation(const RunInputs& inputs, Communicator* ranks)
    : inputs_(inputs), ranks_(ranks), early_(inputs.options.validation.patience) {}

/// One process may stop within a validation. Ranks stop together, at the end of a step.
Evaluation Validation::run() const {
  DataLoader& data = *inputs_.validation;
  const TrainerOptions& options = inputs_.options;
  return evaluate(*inputs_.model, data, ranks_ ? nullptr : options.execution.stop, options.objective.loss,
                  options.objective.metrics, options.objective.metric_options,
                  data.options().parts > 1 ? ranks_ : nullptr);
}

bool Validation::evaluate_start() {
  start_ = run();
  if (start_->stopped) return false;
  early_.begin(*start_);
  return early_.begun();
}

/// Each rank runs all batches, so that the statistics are the same everywhere.
void Validation::reestimate_statistics(std::int64_t epoch) const {
  LoaderOptions options = all_batches(inputs_.training->options());
  options.prefetch = 0;
  DataLoader batches = same_data_loader(*inputs_.training, std::move(options));
  batches.start_epoch(epoch);
  (void)reestimate_batch_norm(*inputs_.model, batches, inputs_.options.batch_norm.reestimate_bn);
}

bool Validation::evaluate_epoch(EpochReport& report, WeightAverage* average) {
  const AverageScope averages(average);
  if (inputs_.options.batch_norm.reestimate_bn > 0) reestimate_statistics(report.epoch);
  if (!inputs_.validation) return true;
  report.validation = run();
  if (report.validation->stopped) return false;
  report.best = early_.update(*report.validation);
  last_ = report.validation;
  return true;
}

}  // namespace fq::detail
