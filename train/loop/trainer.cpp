#include "fakequant/train/loop/trainer.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/detail/allocator.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/log.h"
#include "fakequant/core/profile.h"
#include "fakequant/core/random.h"
#include "fakequant/layers/modules/checkpoint.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/loop/detail/trainer_body.h"
#include "fakequant/train/loop/reestimate.h"
#include "fakequant/train/metrics.h"
#include "fakequant/train/ranks/sharded_optimizer.h"

namespace fq {
namespace {

constexpr std::string_view kTrain = "train";
constexpr std::uint64_t kAdapters = std::uint64_t{1} << 62;  // no batch draws from that

void check_options(const TrainerOptions& o) {
  FQ_CHECK(o.epochs >= 0, kTrain, "epochs is {}: use 0 or more", o.epochs);
  FQ_CHECK(o.accumulation >= 1, kTrain, "accumulation is {}: use 1 batch or more", o.accumulation);
  FQ_CHECK(o.clip_norm >= 0 && std::isfinite(o.clip_norm), kTrain, "clip_norm is {}: use 0 (off) or more",
           o.clip_norm);
  FQ_CHECK(o.label_smoothing >= 0 && o.label_smoothing < 1, kTrain,
           "label_smoothing is {}: use 0 to less than 1", o.label_smoothing);
  check(o.distillation);
  FQ_CHECK(o.save_every >= 0, kTrain, "save_every is {}: use 0 (off) or a number of steps", o.save_every);
  FQ_CHECK(o.quant_start >= 0, kTrain, "quant_start is {}: use 0 or a number of steps", o.quant_start);
  FQ_CHECK(o.freeze_bn_after >= -1 && o.freeze_amax_after >= -1, kTrain,
           "freeze_bn_after is {} and freeze_amax_after {}: use -1 (never) or a number of steps",
           o.freeze_bn_after, o.freeze_amax_after);
  FQ_CHECK(o.amax_momentum > 0 && o.amax_momentum <= 1, kTrain,
           "amax_momentum is {}: use more than 0, at most 1", o.amax_momentum);
  check(o.oscillation);
  check(o.progressive);
  FQ_CHECK(o.ewgs >= 0 && o.ewgs <= 2, kTrain, "ewgs is {}: use 0 (off) to 2", o.ewgs);
  FQ_CHECK(o.soft_share >= 0 && o.soft_share <= 1, kTrain, "soft_share is {}: use 0 (off) to 1",
           o.soft_share);
  FQ_CHECK(o.quant_noise >= 0 && o.quant_noise < 1, kTrain, "quant_noise is {}: use 0 (off) to less than 1",
           o.quant_noise);
  FQ_CHECK((o.soft_share > 0) + (o.quant_noise > 0) + o.stochastic_rounding <= 1, kTrain,
           "soft_share is {}, quant_noise {} and stochastic_rounding {}: give one of them", o.soft_share,
           o.quant_noise, o.stochastic_rounding);
  FQ_CHECK(o.amax_decay >= 0 && std::isfinite(o.amax_decay), kTrain, "amax_decay is {}: use 0 (off) or more",
           o.amax_decay);
  FQ_CHECK(o.amax_decay == 0 || o.amax == AmaxMode::learned, kTrain,
           "amax_decay is {}, and ranges are not learned: learn them, or leave it out", o.amax_decay);
  FQ_CHECK(o.amax_rate > 0 && std::isfinite(o.amax_rate), kTrain, "amax_rate is {}: use more than 0",
           o.amax_rate);
  FQ_CHECK(o.amax_rate == 1 || o.amax == AmaxMode::learned || o.learn_weight_ranges, kTrain,
           "amax_rate is {}, and ranges are not learned: learn them, or leave it out", o.amax_rate);
  FQ_CHECK(o.reestimate_bn >= 0, kTrain, "reestimate_bn is {}: use 0 (off) or a number of batches",
           o.reestimate_bn);
  FQ_CHECK(o.reestimate_bn == 0 || o.freeze_bn_after < 0, kTrain,
           "reestimate_bn is {} and freeze_bn_after {}: statistics that are frozen are not made anew: give "
           "one of the two",
           o.reestimate_bn, o.freeze_bn_after);
  for (const auto& name : o.metrics) (void)make_metric(name);
}

bool replaces_weights(const TrainerOptions& o) {
  return o.soft_share > 0 || o.quant_noise > 0 || o.stochastic_rounding;
}

/// What is to happen at a step of the run has to be one of its steps.
void check_steps(const TrainerOptions& o, std::int64_t steps) {
  const std::pair<const char*, std::int64_t> given[] = {{"quant_start", o.quant_start},
                                                        {"freeze_bn_after", o.freeze_bn_after},
                                                        {"freeze_amax_after", o.freeze_amax_after},
                                                        {"warm_up", o.schedule.warm_up}};
  for (const auto& [name, step] : given)
    FQ_CHECK(step <= std::max<std::int64_t>(steps, 0), kTrain,
             "{} is {}, longer than the run of {} steps: give fewer, or more epochs", name, step, steps);
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
  if (o.reduction != Reduction::exact)
    log(LogLevel::warning,
        fmt::format(
            "[train] gradients of ranks are summed as {}: the run has other bits for another number of "
            "them",
            o.reduction == Reduction::fp32 ? "fp32" : "bf16"));
  const int size = o.ranks->size();
  FQ_CHECK(size <= o.accumulation, kTrain,
           "{} ranks share out steps of {} batches: start at most {}, or make the batches of a step smaller",
           size, o.accumulation, o.accumulation);
  FQ_CHECK(
      loader.part == o.ranks->rank() && loader.parts == size && loader.turn == o.accumulation, kTrain,
      "rank {} of {} is given batches of part {} of {} in turns of {}: make the loader with those of the "
      "rank, in turns of accumulation",
      o.ranks->rank(), size, loader.part, loader.parts, loader.turn);
}

nlohmann::json parsed(const std::string& text) {
  if (text.empty()) return nullptr;
  return detail::JsonText(text, fmt::format("{}: the model's description", kTrain)).value();
}

void decay_ranges(Module& model, TrainerOptions& options) {
  const auto weights = weight_quantizers(model);
  for (const auto& entry : named_quantizers(model))
    if (!weights.contains(entry.quantizer))
      options.optimizer.rules.push_back({entry.name + ".amax", options.amax_decay, std::nullopt});
}

/// Ranges become parameters before the optimizer asks for them.
std::shared_ptr<Module> prepared(std::shared_ptr<Module> model, TrainerOptions& options) {
  FQ_CHECK(model != nullptr, kTrain, "the model is null");
  check_not_compressed(*model, kTrain);
  if (options.amax == AmaxMode::learned) learn_ranges(*model, options.amax_gradient);
  if (options.amax_decay > 0) decay_ranges(*model, options);
  if (options.learn_weight_ranges) learn_weight_ranges(*model, options.amax_gradient);
  if (options.amax_rate != 1) options.optimizer.rules.push_back({"*.amax", std::nullopt, options.amax_rate});
  if (!options.checkpoint_blocks.empty()) set_checkpointing(*model, options.checkpoint_blocks);
  return model;
}

std::unique_ptr<Optimizer> optimizer_of(const Module& model, const TrainerOptions& options) {
  if (!options.shard_optimizer) return make_optimizer(model, options.optimizer);
  FQ_CHECK(options.ranks, kTrain, "shard_optimizer is for several processes: give ranks, or leave it out");
  return std::make_unique<ShardedOptimizer>(options.ranks, model, options.optimizer);
}

/// What else would write to the weights, or move their grid.
void check_low_rank(const TrainerOptions& o) {
  FQ_CHECK(
      o.amax != AmaxMode::learned && !o.learn_weight_ranges, kTrain,
      "low_rank adapters are merged on the grid that was calibrated, and ranges are learned: leave one out");
  FQ_CHECK(o.average_decay == 0, kTrain, "low_rank adapters and average_decay {}: give one of them",
           o.average_decay);
  FQ_CHECK(o.oscillation.mode != "freeze", kTrain,
           "low_rank adapters and weights that oscillation freezes: give one of them");
  FQ_CHECK(o.progressive.empty(), kTrain, "low_rank adapters and stages of bits: give one of them");
}

std::unique_ptr<LowRankAdapters> adapters_of(Module& model, const TrainerOptions& options) {
  if (options.low_rank.rank == 0) return nullptr;
  check_low_rank(options);
  const RandomScope random(options.seed, kAdapters);
  return std::make_unique<LowRankAdapters>(model, options.low_rank);
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

void warn_of_held(const detail::RangeGuard& ranges) {
  if (ranges.held() == 0) return;
  const auto names = ranges.names();
  const std::string others = names.size() > 1 ? fmt::format(" and {} others", names.size() - 1) : "";
  log(LogLevel::warning, fmt::format("[train] steps would have taken learned ranges beyond half or twice "
                                     "what they were, {} times ({}{}): they were held there; a smaller "
                                     "learning rate leaves them to themselves",
                                     ranges.held(), names.front(), others));
}

}  // namespace

Trainer::Body::Body(std::shared_ptr<Module> network, std::shared_ptr<DataLoader> data, TrainerOptions chosen,
                    std::shared_ptr<DataLoader> held_out, TrainerCallbacks hooks)
    : model(prepared(std::move(network), chosen)),
      training(std::move(data)),
      validation(std::move(held_out)),
      options(std::move(chosen)),
      callbacks(std::move(hooks)),
      description(parsed(options.model)),
      adapters(adapters_of(*model, options)),
      optimizer(optimizer_of(adapters ? adapters->parameters() : *model, options)),
      parameters(adapters ? adapters->parameters().parameters() : model->parameters()),
      early(options.patience),
      switches(*model),
      ranges(*model),
      passes(model, {.label_smoothing = options.label_smoothing,
                     .loss = options.loss,
                     .distillation = options.distillation,
                     .capture = options.capture && options.accumulation == 1 && !options.ranks && !adapters &&
                                !replaces_weights(options)}) {
  check_options(options);
  FQ_CHECK(training != nullptr && (training->data().classes() > 0 || options.loss), kTrain,
           "the training data has no labels of classes: give some, or a loss of your own for others");
  if (options.ranks) {
    check_ranks(options, training->options());
    shared.emplace(options.ranks, *model, options.amax == AmaxMode::running, options.reduction);
  }
  warn_of_one_class(training->data());
  FQ_CHECK(options.patience == 0 || validation, kTrain, "patience needs validation data: give some, or 0");
  if (const auto& followed = options.distillation; followed.teacher && followed.weight > 0)
    teacher.emplace(followed.teacher, *training, model->device());
  FQ_CHECK(!options.validate_start || validation, kTrain,
           "validate_start needs validation data: give some, or leave it out");
  check_reestimation(*model, *training, options.reestimate_bn);
  if (options.oscillation.mode != "off") oscillation.emplace(*model, options.oscillation);
  if (options.ewgs > 0 || options.oscillation.mode == "dampen") gradients.emplace(*model);
  if (replaces_weights(options)) forward_weights.emplace(*model);
  if (!options.progressive.empty()) bits.emplace(*model, options.progressive, total_steps());
  if (options.average_decay != 0) average.emplace(*model, options.average_decay);
  check_steps(options, total_steps());
  schedule = make_schedule(options.schedule, total_steps());
  if (options.schedule.kind == "plateau") {
    FQ_CHECK(validation, kTrain,
             "the schedule plateau needs validation data: give some, or another schedule");
    plateau.emplace(options.schedule.step_factor, options.schedule.patience);
  }
  progress.seed = options.seed;
}

std::int64_t Trainer::Body::steps_per_epoch() const {
  return (training->batches_per_epoch() + options.accumulation - 1) / options.accumulation;
}

bool Trainer::Body::train() try {
  if (!options.out.empty()) (void)fingerprints();
  asked_to_stop = false;
  if (shared) check_same_run_everywhere();
  validate_start();
  if (teacher) teacher->prepare(stop_flag());
  pace = {};
  if (average && average->swapped()) average->swap();
  model->train();
  bool stopped = false;
  while (progress.epoch < options.epochs && !early.should_stop() && !stopped) {
    const std::int64_t before = progress.epoch;
    if (training->epoch() == before) train_epoch();
    passes.forget();
    if (training->epoch() > before) finish_epoch();
    stopped = stop_requested() && progress.epoch == before;
  }
  if (stopped && waiting_batches == 0 && !options.out.empty()) {
    check_finite();
    save(options.out);
  }
  if (average) average->swap();
  if (options.restore_best && !stopped && (early.best_epoch() >= 0 || early.begun())) restore_best();
  return stopped;
} catch (const NumericError& error) {
  throw NumericError(error.what() + last_saved());
}

void Trainer::Body::validate_start() {
  if (!options.validate_start || progress.batch > 0) return;
  start = validate();
  if (start->stopped) return;
  early.begin(*start);
  if (early.begun()) keep_best();
}

Evaluation Trainer::Body::validate() {
  auto* ranks = shared && validation->options().parts > 1 ? &shared->ranks() : nullptr;
  return evaluate(*model, *validation, stop_flag(), options.loss, options.metrics, options.metric_options,
                  ranks);
}

void Trainer::Body::train_epoch() {
  pace.begin_epoch();
  reset_peak_memory(model->device());
  while (!stop_requested()) {
    ProfileStep profile;
    const auto batch = next_batch();
    if (batch) train_batch(*batch);
    if (waiting_batches > 0 && (!batch || waiting_batches == options.accumulation)) {
      step();
      profile.count();
    }
    if (!batch) return;
  }
}

std::optional<Batch> Trainer::Body::next_batch() {
  const ProfileScope profile("loader");
  const auto before = Clock::now();
  auto batch = training->next();
  pace.loading += seconds_since(before);
  return batch;
}

LoaderOptions Trainer::Body::whole_batches() const {
  LoaderOptions out = training->options();
  out.prefetch = 0;
  out.part = 0;
  out.parts = out.turn = 1;
  return out;
}

void Trainer::Body::reestimate() {
  DataLoader batches(std::shared_ptr<const Dataset>(training, &training->data()), whole_batches());
  batches.start_epoch(progress.epoch);
  (void)reestimate_batch_norm(*model, batches, options.reestimate_bn);
}

void Trainer::Body::finish_epoch() {
  check_finite();
  EpochReport report{.epoch = progress.epoch,
                     .epochs = options.epochs,
                     .loss = progress.mean_loss(),
                     .accuracy = progress.accuracy(),
                     .validation = {},
                     .oscillation = oscillation ? std::optional(oscillation->share()) : std::nullopt,
                     .bits = bits ? bits->bits() : 0,
                     .learning_rate = optimizer->learning_rate(),
                     .peak_memory = memory_stats(model->device()).peak};
  {
    const AverageScope averages(average ? &*average : nullptr);
    if (options.reestimate_bn > 0) reestimate();
    if (validation) {
      report.validation = validate();
      if (report.validation->stopped) return;
      report.best = (!bits || bits->finished()) && early.update(*report.validation);
      if (plateau) plateau->update(report.validation->score);
    }
  }
  last = report.validation;
  progress.next_epoch();
  if (report.best) keep_best();
  if (!options.out.empty()) save(options.out);
  report.seconds = seconds_since(pace.start);
  if (callbacks.on_epoch) callbacks.on_epoch(report);
}

Trainer::Trainer(std::shared_ptr<Module> model, std::shared_ptr<DataLoader> training, TrainerOptions options,
                 std::shared_ptr<DataLoader> validation, TrainerCallbacks callbacks)
    : body_(std::make_unique<Body>(std::move(model), std::move(training), std::move(options),
                                   std::move(validation), std::move(callbacks))) {
  body_->training->start_epoch(0);
}
Trainer::~Trainer() = default;

void Trainer::resume(const StateDict& checkpoint, const std::string& path) { body_->load(checkpoint, path); }

StateDict Trainer::state_dict() const { return body_->state(); }

TrainingResult Trainer::fit() {
  Body& run = *body_;
  const bool stopped = run.train();
  warn_of_held(run.ranges);
  const bool early = run.early.should_stop() && run.progress.epoch < run.options.epochs;
  return {.epochs = run.progress.epoch,
          .steps = run.progress.step,
          .stopped = stopped,
          .stopped_early = early,
          .ranges_held = run.ranges.held(),
          .validation = run.last,
          .start = run.start,
          .best_epoch = run.early.best_epoch(),
          .best_accuracy = run.early.best_accuracy(),
          .best_score = run.early.best_score()};
}

}  // namespace fq
