#include "fakequant/train/loop/detail/run_inputs.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/log.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/train/loop/reestimate.h"
#include "fakequant/train/metrics.h"
#include "fakequant/train/ranks/shares.h"

namespace fq::detail {
namespace {

constexpr std::string_view kTrain = "train";

void check_options(const TrainerOptions& o) {
  FQ_CHECK(o.epochs >= 0, kTrain, "epochs is {}: use 0 or more", o.epochs);
  FQ_CHECK(o.steps >= 0, kTrain, "steps is {}: use 0 (as many as epochs have) or more", o.steps);
  FQ_CHECK(o.update.accumulation >= 1, kTrain, "accumulation is {}: use 1 batch or more",
           o.update.accumulation);
  FQ_CHECK(o.update.clip_norm >= 0 && std::isfinite(o.update.clip_norm), kTrain,
           "clip_norm is {}: use 0 (off) or more", o.update.clip_norm);
  FQ_CHECK(o.objective.label_smoothing >= 0 && o.objective.label_smoothing < 1, kTrain,
           "label_smoothing is {}: use 0 to less than 1", o.objective.label_smoothing);
  check(o.objective.distillation);
  FQ_CHECK(o.checkpoint.save_every >= 0, kTrain, "save_every is {}: use 0 (off) or a number of steps",
           o.checkpoint.save_every);
  FQ_CHECK(o.ranges.quant_start >= 0, kTrain, "quant_start is {}: use 0 or a number of steps",
           o.ranges.quant_start);
  FQ_CHECK(o.batch_norm.freeze_bn_after >= -1 && o.ranges.freeze_amax_after >= -1, kTrain,
           "freeze_bn_after is {} and freeze_amax_after {}: use -1 (never) or a number of steps",
           o.batch_norm.freeze_bn_after, o.ranges.freeze_amax_after);
  FQ_CHECK(o.ranges.amax_momentum > 0 && o.ranges.amax_momentum <= 1, kTrain,
           "amax_momentum is {}: use more than 0, at most 1", o.ranges.amax_momentum);
  FQ_CHECK(o.ranges.amax_rate > 0 && std::isfinite(o.ranges.amax_rate), kTrain,
           "amax_rate is {}: use more than 0", o.ranges.amax_rate);
  FQ_CHECK(o.ranges.amax_rate == 1 || o.ranges.amax == AmaxMode::learned || o.ranges.learn_weight_ranges,
           kTrain, "amax_rate is {}, and ranges are not learned: learn them, or leave it out",
           o.ranges.amax_rate);
  FQ_CHECK(o.batch_norm.reestimate_bn >= 0, kTrain, "reestimate_bn is {}: use 0 (off) or a number of batches",
           o.batch_norm.reestimate_bn);
  FQ_CHECK(o.batch_norm.reestimate_bn == 0 || o.batch_norm.freeze_bn_after < 0, kTrain,
           "reestimate_bn is {} and freeze_bn_after {}: statistics that are frozen are not made anew: give "
           "one of the two",
           o.batch_norm.reestimate_bn, o.batch_norm.freeze_bn_after);
  for (const auto& name : o.objective.metrics) (void)make_metric(name);
}

void check_steps(const TrainerOptions& o, std::int64_t steps) {
  const std::pair<const char*, std::int64_t> given[] = {{"quant_start", o.ranges.quant_start},
                                                        {"freeze_bn_after", o.batch_norm.freeze_bn_after},
                                                        {"freeze_amax_after", o.ranges.freeze_amax_after},
                                                        {"warm_up", o.schedule.warm_up}};
  for (const auto& [name, step] : given)
    FQ_CHECK(step <= std::max<std::int64_t>(steps, 0), kTrain,
             "{} is {}, longer than the run of {} steps: give fewer, or more of the run", name, step, steps);
}

void check_reestimation(Module& model, const DataLoader& training, std::int64_t batches) {
  FQ_CHECK(batches <= training.batches_per_epoch(), kTrain,
           "reestimate_bn is {}, an epoch has {} batches: give at most those", batches,
           training.batches_per_epoch());
  FQ_CHECK(batches == 0 || live_batch_norms(model) > 0, kTrain,
           "reestimate_bn is {}, and the network has no live batch norm: quantize it unfolded, or leave it "
           "out",
           batches);
}

void check_ranks(const TrainerOptions& o, const LoaderOptions& loader) {
  if (o.distributed.reduction != fq::Reduction::exact)
    log(LogLevel::warning,
        fmt::format(
            "[train] gradients of ranks are summed as {}: the run has other bits for another number of "
            "them",
            o.distributed.reduction == fq::Reduction::fp32 ? "fp32" : "bf16"));
  const int size = o.distributed.ranks->size();
  FQ_CHECK(size <= o.update.accumulation, kTrain,
           "{} ranks share out steps of {} batches: start at most {}, or make the batches of a step smaller",
           size, o.update.accumulation, o.update.accumulation);
  check_share(loader, *o.distributed.ranks, o.update.accumulation, kTrain);
}

void check_low_rank(const TrainerOptions& o) {
  if (o.low_rank.rank == 0) return;
  FQ_CHECK(
      o.ranges.amax != AmaxMode::learned && !o.ranges.learn_weight_ranges, kTrain,
      "low_rank adapters are merged on the grid that was calibrated, and ranges are learned: leave one out");
  FQ_CHECK(o.update.average_decay == 0, kTrain, "low_rank adapters and average_decay {}: give one of them",
           o.update.average_decay);
}

void check_validation(const TrainerOptions& o, const DataLoader* validation) {
  FQ_CHECK(o.validation.patience == 0 || validation, kTrain,
           "patience needs validation data: give some, or 0");
  FQ_CHECK(!o.validation.validate_start || validation, kTrain,
           "validate_start needs validation data: give some, or leave it out");
  FQ_CHECK(o.schedule.kind != "plateau" || validation, kTrain,
           "the schedule plateau needs validation data: give some, or another schedule");
}

void warn_of_one_class(const Dataset& data) {
  const Tensor labels = data.labels();
  if (!labels.defined() || labels.dtype() != DType::i64 || labels.rank() != 1) return;
  const auto* begin = labels.data<std::int64_t>();
  if (std::all_of(begin, begin + labels.numel(), [&](auto label) { return label == *begin; }))
    log(LogLevel::warning,
        fmt::format("[train] all {} labels of the training data are {}: whatever is trained learns to say {}",
                    labels.numel(), *begin, *begin));
}

}  // namespace

RunInputs checked(RunInputs inputs) {
  const auto& [model, training, validation, options, callbacks] = inputs;
  FQ_CHECK(model != nullptr, kTrain, "the model is null");
  check_not_compressed(*model, kTrain);
  check_options(options);
  check_low_rank(options);
  FQ_CHECK(!options.distributed.shard_optimizer || options.distributed.ranks, kTrain,
           "shard_optimizer is for several processes: give ranks, or leave it out");
  FQ_CHECK(training != nullptr && (training->data().classes() > 0 || options.objective.loss), kTrain,
           "the training data has no labels of classes: give some, or a loss of your own for others");
  if (options.distributed.ranks) check_ranks(options, training->options());
  check_validation(options, validation.get());
  check_reestimation(*model, *training, options.batch_norm.reestimate_bn);
  check_steps(options, total_steps(inputs));
  warn_of_one_class(training->data());
  return inputs;
}

std::int64_t steps_per_epoch(const RunInputs& inputs) {
  const std::int64_t accumulation = inputs.options.update.accumulation;
  return (inputs.training->batches_per_epoch() + accumulation - 1) / accumulation;
}

std::int64_t total_steps(const RunInputs& inputs) {
  const std::int64_t steps = inputs.options.steps;
  return steps > 0 ? steps : inputs.options.epochs * steps_per_epoch(inputs);
}

}  // namespace fq::detail
