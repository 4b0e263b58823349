#include "fakequant/train/loop/trainer.h"

#include "fakequant/core/detail/allocator.h"
#include "fakequant/core/log.h"
#include "fakequant/core/profile.h"
#include "fakequant/train/loop/detail/trainer_body.h"
#include "fakequant/train/loop/reestimate.h"
#include "fakequant/train/ranks/shares.h"

namespace fq {
namespace {

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

std::int64_t Trainer::Body::steps_per_epoch() const {
  return (training->batches_per_epoch() + options.accumulation - 1) / options.accumulation;
}

std::int64_t Trainer::Body::epochs() const {
  const std::int64_t each = steps_per_epoch();
  return options.steps > 0 ? (options.steps + each - 1) / each : options.epochs;
}

bool Trainer::Body::finished() const {
  if (options.steps == 0) return progress.epoch >= options.epochs;
  if (progress.step != options.steps) return progress.step > options.steps;
  return cut() || progress.epoch == epochs();
}

bool Trainer::Body::train() try {
  if (waiting_batches == 0) forget_gradients();
  if (!options.out.empty()) (void)fingerprints();
  asked_to_stop = false;
  if (shared) check_same_run_everywhere();
  validate_start();
  pace = {};
  if (average && average->swapped()) average->swap();
  model->train();
  bool stopped = false;
  while (!finished() && !early.should_stop() && !stopped) {
    const std::int64_t before = progress.epoch;
    if (training->epoch() == before) train_epoch();
    passes.forget();
    const bool ended = (training->epoch() > before || cut()) && finish_epoch();
    stopped = stop_requested() && !ended;
  }
  if (stopped && waiting_batches == 0 && !options.out.empty()) {
    check_finite();
    save(options.out);
  }
  if (average) average->swap();
  if (options.restore_best && !stopped && (early.best_epoch() >= 0 || early.begun())) restore_best();
  return stopped;
} catch (const NumericError& error) {
  forget_gradients();
  throw NumericError(error.what() + last_saved());
} catch (...) {
  forget_gradients();
  throw;
}

void Trainer::Body::forget_gradients() {
  waiting_batches = waiting_samples = 0;
  for (auto& parameter : model->parameters()) parameter.zero_grad();
  for (auto& parameter : parameters) parameter.zero_grad();
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
    if (!batch || cut()) return;
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
  LoaderOptions out = all_batches(training->options());
  out.prefetch = 0;
  return out;
}

void Trainer::Body::reestimate() {
  DataLoader batches = detail::loader_beside(*training, whole_batches());
  batches.start_epoch(progress.epoch);
  (void)reestimate_batch_norm(*model, batches, options.reestimate_bn);
}

bool Trainer::Body::finish_epoch() {
  check_finite();
  EpochReport report{.epoch = progress.epoch,
                     .epochs = epochs(),
                     .loss = progress.mean_loss(),
                     .accuracy = progress.accuracy(),
                     .validation = {},
                     .learning_rate = optimizer->learning_rate(),
                     .peak_memory = memory_stats(model->device()).peak};
  {
    const AverageScope averages(average ? &*average : nullptr);
    if (options.reestimate_bn > 0) reestimate();
    if (validation) {
      report.validation = validate();
      if (report.validation->stopped) return false;
      report.best = early.update(*report.validation);
      if (plateau) plateau->update(report.validation->score);
    }
  }
  last = report.validation;
  if (training->epoch() > progress.epoch) progress.next_epoch();
  if (report.best) keep_best();
  if (!options.out.empty()) save(options.out);
  report.seconds = seconds_since(pace.start);
  if (callbacks.on_epoch) callbacks.on_epoch(report);
  return true;
}

Trainer::Trainer(std::shared_ptr<Module> model, std::shared_ptr<DataLoader> training, TrainerOptions options,
                 std::shared_ptr<DataLoader> validation, TrainerCallbacks callbacks)
    : body_(std::make_unique<Body>(std::move(model), std::move(training), std::move(options),
                                   std::move(validation), std::move(callbacks))) {
  body_->training->start_epoch(0);
}
Trainer::~Trainer() = default;

void Trainer::resume(const StateDict& checkpoint, const std::string& path) { body_->load(checkpoint, path); }

bool Trainer::done() const { return body_->finished() || body_->early.should_stop(); }

StateDict Trainer::state_dict() const { return body_->state(); }

TrainingResult Trainer::fit() {
  Body& run = *body_;
  if (const double rate = run.options.optimizer.learning_rate; run.highest_rate() < rate)
    log(LogLevel::info,
        fmt::format(
            "[train] {} steps are few for this format: the learning rate is {:.2g}, {} from {} steps on",
            run.total_steps(), run.highest_rate(), rate, run.options.full_rate_steps));
  const bool stopped = run.train();
  warn_of_held(run.ranges);
  const bool early = run.early.should_stop() && !run.finished();
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
