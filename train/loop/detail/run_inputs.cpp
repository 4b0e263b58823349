#include "fakequant/train/loop/detail/run_inputs.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/log.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/train/loop/average.h"
#include "fakequant/train/metrics.h"
#include "fakequant/train/ranks/shares.h"

namespace fq::detail {
namespace {

constexpr std::string_view kTrain = "train";

void check_options(const TrainerOptions& o) {
  FQ_CHECK(o.epochs >= 0, kTrain, "epochs is {}: use 0 or more", o.epochs);
  FQ_CHECK(o.steps >= 0, kTrain, "steps is {}: use 0 (the steps of the epochs) or more", o.steps);
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
           "reestimate_bn is {} and freeze_bn_after {}: frozen statistics are not recomputed: use one "
           "of the two",
           o.batch_norm.reestimate_bn, o.batch_norm.freeze_bn_after);
  // Throws for an unknown metric now, not at the first validation.
  for (const auto& name : o.objective.metrics) (void)make_metric(name);
}

void check_steps(const TrainerOptions& o, std::int64_t steps) {
  // Settings in steps that would take no effect before the end of the run.
  const std::pair<const char*, std::int64_t> given[] = {{"quant_start", o.ranges.quant_start},
                                                        {"freeze_bn_after", o.batch_norm.freeze_bn_after},
                                                        {"freeze_amax_after", o.ranges.freeze_amax_after},
                                                        {"warm_up", o.schedule.warm_up}};
  for (const auto& [name, step] : given)
    FQ_CHECK(step <= std::max<std::int64_t>(steps, 0), kTrain,
             "{} is {}, longer than the run of {} steps: use fewer steps, or a longer run", name, step,
             steps);
}

void check_reestimation(Module& model, const DataLoader& training, std::int64_t batches) {
  FQ_CHECK(batches <= training.batches_per_epoch(), kTrain,
           "reestimate_bn is {}, an epoch has {} batches: use at most {}", batches,
           training.batches_per_epoch(), training.batches_per_epoch());
  // Folded batch norms have no statistics left.
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
  // A step's batches are divided among the ranks: each rank needs at least one.
  FQ_CHECK(size <= o.update.accumulation, kTrain,
           "{} ranks share steps of {} batches: use at most {} ranks, or smaller batches", size,
           o.update.accumulation, o.update.accumulation);
  check_share(loader, *o.distributed.ranks, o.update.accumulation, kTrain);
}

void check_low_rank(const TrainerOptions& o) {
  if (o.low_rank.rank == 0) return;
  FQ_CHECK(o.ranges.amax != AmaxMode::learned && !o.ranges.learn_weight_ranges, kTrain,
           "low_rank adapters require calibrated ranges, and ranges are learned: use one of the two");
  FQ_CHECK(o.update.average_decay == 0, kTrain,
           "average_decay is {} with low_rank adapters: use 0, or no adapters", o.update.average_decay);
}

void check_validation(const TrainerOptions& o, const DataLoader* validation) {
  FQ_CHECK(o.validation.patience == 0 || validation, kTrain,
           "patience needs validation data: use some, or 0");
  FQ_CHECK(!o.validation.validate_start || validation, kTrain,
           "validate_start needs validation data: use some, or leave it out");
  FQ_CHECK(o.schedule.kind != "plateau" || validation, kTrain,
           "the schedule plateau needs validation data: use some, or another schedule");
}

// Such labels are often a data set that was cut from a sorted one.
void warn_of_one_class(const Dataset& data) {
  const Tensor labels = data.labels();
  if (!labels.defined() || labels.dtype() != DType::i64 || labels.rank() != 1) return;
  const auto* begin = labels.data<std::int64_t>();
  if (std::all_of(begin, begin + labels.numel(), [&](auto label) { return label == *begin; }))
    log(LogLevel::warning,
        fmt::format(
            "[train] all {} labels of the training data are {}: the network will learn to predict {} only",
            labels.numel(), *begin, *begin));
}

using nlohmann::json;

std::string value_text(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Only fields that the optimizer uses: a change of the others must not prevent a resumed run.
json to_settings(const OptimizerOptions& o) {
  json out{{"optimizer", o.kind},
           {"learning_rate", o.learning_rate},
           {"weight_decay", o.weight_decay},
           {"decay_all", o.decay_all}};
  if (o.kind == "sgd") {
    out.update(
        {{"momentum", o.momentum.value_or(0.9)}, {"nesterov", o.nesterov}, {"dampening", o.dampening}});
    return out;
  }
  if (o.kind == "adagrad")
    out["rate_decay"] = o.rate_decay;
  else if (o.kind == "rmsprop")
    out.update({{"momentum", o.momentum.value_or(0)}, {"alpha", o.alpha}, {"centered", o.centered}});
  else
    out.update({{"beta1", o.beta1}, {"beta2", o.beta2.value_or(o.kind == "lion" ? 0.99 : 0.999)}});
  if (o.kind == "adam" || o.kind == "adamw") out["amsgrad"] = o.amsgrad;
  // Defaults of the optimizers' option structs: settings state the value that is used.
  out["eps"] = o.eps.value_or(o.kind == "adagrad" ? 1e-10 : o.kind == "lamb" ? 1e-6 : 1e-8);
  return out;
}

json to_settings(const ScheduleOptions& o) {
  json out{{"schedule", o.kind}, {"warm_up", o.warm_up}};
  if (o.kind == "step") out.update({{"step_every", o.step_every}, {"step_factor", o.step_factor}});
  if (o.kind == "multi_step") out.update({{"milestones", o.milestones}, {"step_factor", o.step_factor}});
  if (o.kind == "plateau") out.update({{"plateau_patience", o.patience}, {"step_factor", o.step_factor}});
  if (o.kind == "polynomial") out.update({{"power", o.power}, {"last", o.last}});
  if (o.kind == "restarts") out.update({{"period", o.period}, {"grow", o.grow}, {"last", o.last}});
  if (o.kind == "cosine") out["last"] = o.last;
  if (o.kind == "one_cycle") out.update({{"rise", o.rise}, {"div", o.div}, {"final_div", o.final_div}});
  return out;
}

json to_settings(const DistillationOptions& o) {
  if (o.teacher == nullptr) return {{"distillation", "none"}};
  json out{{"distillation", o.kind}, {"teacher_weight", o.weight}};
  if (o.kind == "kl") out["temperature"] = o.temperature;
  return out;
}

json to_settings(const LowRankOptions& o) {
  json out{{"lora_rank", o.rank}};
  if (o.rank > 0) out.update({{"lora_scale", o.scale()}, {"lora_layers", o.layers}});
  return out;
}

json range_settings(const TrainerOptions& o) {
  if (o.ranges.amax == AmaxMode::learned)
    return {{"amax_mode", "learned"},
            {"amax_gradient", o.ranges.amax_gradient == AmaxGradient::lsq ? "lsq" : "clip"}};
  if (o.ranges.amax == AmaxMode::running)
    return {{"amax_mode", "running"},
            {"amax_momentum", o.ranges.amax_momentum},
            {"freeze_amax_after", o.ranges.freeze_amax_after}};
  return {{"amax_mode", "frozen"}};
}

json to_settings(const LoaderOptions& o) {
  json out{{"batch_size", o.batch_size},       {"shuffle", o.shuffle},
           {"drop_last", o.drop_last},         {"loader_seed", o.seed},
           {"class_weights", o.class_weights}, {"balanced", o.balanced},
           {"number_labels", o.number_labels}};
  for (const auto& change : augment_changes())
    for (const auto& number : change.numbers)
      out[fmt::format("augment_{}", number.name)] = o.augment.*number.value;
  return out;
}

}  // namespace

RunInputs checked(RunInputs inputs) {
  const auto& [model, training, validation, options, callbacks] = inputs;
  FQ_CHECK(model != nullptr, kTrain, "the model is null");
  check_not_compressed(*model, kTrain);
  check_options(options);
  check_low_rank(options);
  FQ_CHECK(!options.distributed.shard_optimizer || options.distributed.ranks, kTrain,
           "shard_optimizer is for several processes: use ranks, or leave it out");
  // Cross entropy needs classes; a loss of the user decides about labels by itself.
  FQ_CHECK(training != nullptr && (training->data().classes() > 0 || options.objective.loss), kTrain,
           "the training data has no class labels: use other data, or a loss for these labels");
  if (options.distributed.ranks) check_ranks(options, training->options());
  check_validation(options, validation.get());
  check_reestimation(*model, *training, options.batch_norm.reestimate_bn);
  // The length of the run is known after the data has been checked.
  check_steps(options, total_steps(inputs));
  warn_of_one_class(training->data());
  return inputs;
}

std::int64_t steps_per_epoch(const RunInputs& inputs) {
  // The last step of an epoch may have fewer batches.
  const std::int64_t accumulation = inputs.options.update.accumulation;
  return (inputs.training->batches_per_epoch() + accumulation - 1) / accumulation;
}

std::int64_t total_steps(const RunInputs& inputs) {
  const std::int64_t steps = inputs.options.steps;
  return steps > 0 ? steps : inputs.options.epochs * steps_per_epoch(inputs);
}

// Files store these names. A new setting needs a default in `completed`, for files that lack it.
json run_settings(const TrainerOptions& options, const DataLoader& training, const DataLoader* validation) {
  json out{{"accumulation", options.update.accumulation},
           // Exact sums have the same bits for any number of ranks, but other bits than one process without
           // ranks.
           {"exact_sums",
            options.distributed.ranks != nullptr && options.distributed.reduction == fq::Reduction::exact},
           {"clip_norm", options.update.clip_norm},
           {"label_smoothing", options.objective.label_smoothing},
           {"average_decay", options.update.average_decay},
           {"seed", options.seed},
           {"freeze_bn_after", options.batch_norm.freeze_bn_after},
           {"reestimate_bn", options.batch_norm.reestimate_bn},
           {"quant_start", options.ranges.quant_start},
           {"learn_weight_ranges", options.ranges.learn_weight_ranges},
           {"amax_rate", options.ranges.amax_rate},
           {"backward", options.execution.backward == BackwardType::bf16 ? "bf16" : "fp32"},
           {"validation_samples", validation == nullptr ? 0 : validation->data().size()}};
  out.update(to_settings(options.optimizer));
  out.update(to_settings(options.schedule));
  out.update(to_settings(options.objective.distillation));
  out.update(to_settings(options.low_rank));
  out.update(range_settings(options));
  out.update(to_settings(training.options()));
  return out;
}

json completed(json settings) {
  // Older versions had a switch for flips with the probability 1/2.
  if (settings.contains("augment_flip"))
    settings["augment_hflip"] = settings.at("augment_flip") == true ? 0.5 : 0.0;
  json out = to_settings(LoaderOptions{});
  // Files of all versions have these.
  for (const char* key : {"batch_size", "shuffle", "drop_last", "loader_seed"}) out.erase(key);
  out.update(to_settings(DistillationOptions{}));
  out.update(to_settings(LowRankOptions{}));
  out["reestimate_bn"] = 0;
  out["exact_sums"] = false;
  out["amax_rate"] = 1.0;
  out.update(settings);
  return out;
}

void check_removed_settings(const json& settings, const std::string& path) {
  // Removed options and the value that switched them off.
  static const json removed{
      {"ewgs", 0.0},       {"soft_share", 0.0},    {"quant_noise", 0.0},   {"stochastic_rounding", false},
      {"amax_decay", 0.0}, {"oscillation", "off"}, {"progressive", "none"}};
  for (const auto& [option, off] : removed.items())
    FQ_CHECK(
        !settings.contains(option) || settings.at(option) == off, "resume",
        "{}: the run uses {} ({}), which this version has removed. Start a new run from its weights into "
        "another file",
        path, option, value_text(settings.at(option)));
}

std::vector<std::string> differences(const json& there, const json& here) {
  std::vector<std::string> out;
  const auto differs = [&](const std::string& key) {
    return there.contains(key) && here.contains(key) && there.at(key) != here.at(key);
  };
  // The command sets both seeds with one flag: report one difference.
  const bool one_seed = differs("seed") && differs("loader_seed") &&
                        there.at("seed") == there.at("loader_seed") &&
                        here.at("seed") == here.at("loader_seed");
  for (const auto& [key, value] : here.items())
    if (differs(key) && !(one_seed && key == "loader_seed"))
      out.push_back(
          fmt::format("{} is {} there, {} here", key, value_text(there.at(key)), value_text(value)));
  return out;
}

}  // namespace fq::detail
