#include "fakequant/train/loop/trainer.h"

#include <fmt/format.h>

#include "fakequant/core/device.h"
#include "fakequant/core/log.h"
#include "fakequant/core/profile.h"
#include "fakequant/layers/modules/checkpoint.h"
#include "fakequant/train/loop/detail/run_checkpoint.h"
#include "fakequant/train/loop/detail/step_gradients.h"

namespace fq {

/// The loop over epochs, steps and batches.
struct Trainer::Body {
  detail::RunInputs inputs;
  detail::RangePolicy ranges;  // before the optimizer: learned ranges become parameters
  detail::RunProgress progress;
  detail::ParameterUpdate update;
  detail::StepGradients gradients;
  detail::Validation validation;
  detail::RunCheckpoint checkpoint;

  explicit Body(detail::RunInputs given);
  /// Returns whether the stop flag ended the run.
  bool train();
  bool train_epochs();
  void train_epoch();
  void train_step();
  /// Returns false if the stop flag ended the validation.
  bool finish_epoch();
  [[nodiscard]] std::optional<Batch> next_batch();
  void drop_gradients();
  [[nodiscard]] bool done() const { return progress.finished() || validation.early().should_stop(); }
};

Trainer::Body::Body(detail::RunInputs given)
    : inputs(detail::checked(std::move(given))),
      ranges(*inputs.model, inputs.options),
      progress(inputs),
      update(inputs, progress, ranges),
      gradients(inputs, progress, ranges),
      validation(inputs, gradients.ranks()),
      checkpoint(inputs, progress, update, validation, gradients.ranks()) {
  if (const auto& blocks = inputs.options.execution.checkpoint_blocks; !blocks.empty())
    set_checkpointing(*inputs.model, blocks);
  inputs.training->start_epoch(0);
}

// After an error, gradients of an unfinished step must not enter the next one.
void Trainer::Body::drop_gradients() {
  gradients.drop();
  update.zero_gradients();
}

std::optional<Batch> Trainer::Body::next_batch() {
  const ProfileScope profile("loader");
  const auto before = std::chrono::steady_clock::now();
  auto batch = inputs.training->next();
  progress.add_loading_time(std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count());
  return batch;
}

void Trainer::Body::train_step() {
  update.apply(gradients.finish());
  gradients.drop();
  progress.end_step();
  if (inputs.callbacks.on_step) inputs.callbacks.on_step(progress.report(update.learning_rate()));
  const std::int64_t every = inputs.options.checkpoint.save_every;
  if (every > 0 && progress.position().step % every == 0) checkpoint.save_checked();
}

void Trainer::Body::train_epoch() {
  progress.start_epoch_clock();
  reset_peak_memory(inputs.model->device());
  while (!gradients.stop_requested()) {
    ProfileStep profile;
    const auto batch = next_batch();
    if (batch) gradients.add(*batch);
    // The last step of an epoch can have fewer batches.
    if (!gradients.empty() && (!batch || gradients.complete())) {
      train_step();
      profile.count();
    }
    if (!batch || progress.ends_within_epoch()) return;
  }
}

bool Trainer::Body::finish_epoch() {
  // Before the validation and the checkpoint, so that a diverged run keeps its last good file.
  checkpoint.check_finite();
  const detail::RunPosition& at = progress.position();
  EpochReport report{.epoch = at.epoch,
                     .epochs = progress.epochs(),
                     .loss = at.mean_loss(),
                     .accuracy = at.accuracy(),
                     .validation = {},
                     .learning_rate = update.learning_rate(),
                     .peak_memory = memory_stats(inputs.model->device()).peak};
  // The epoch does not count yet: a resumed run repeats the validation.
  if (!validation.evaluate_epoch(report, update.average())) return false;
  if (report.validation) progress.add_score(report.validation->score);
  progress.end_epoch();
  if (report.best) checkpoint.save_best();
  checkpoint.save_last();
  report.seconds = progress.seconds();
  if (inputs.callbacks.on_epoch) inputs.callbacks.on_epoch(report);
  return true;
}

bool Trainer::Body::train_epochs() {
  bool stopped = false;
  while (!done() && !stopped) {
    const std::int64_t epoch = progress.position().epoch;
    // False for a run that was stopped in the validation of its epoch.
    if (inputs.training->epoch() == epoch) train_epoch();
    // Validation and averages change the model between epochs.
    gradients.forget_capture();
    const bool at_end = inputs.training->epoch() > epoch || progress.ends_within_epoch();
    const bool ended = at_end && finish_epoch();
    stopped = gradients.stop_requested() && !ended;
  }
  return stopped;
}

bool Trainer::Body::train() try {
  if (gradients.empty()) drop_gradients();
  gradients.clear_stop();
  checkpoint.begin_run();
  if (inputs.options.validation.validate_start && progress.position().batch == 0 &&
      validation.evaluate_start())
    checkpoint.save_best();
  progress.start_clock();
  WeightAverage* average = update.average();
  // After an earlier `fit` the model has the averages; training continues with the live values.
  if (average && average->swapped()) average->swap();
  inputs.model->train();
  const bool stopped = train_epochs();
  // With an unfinished step, the last checkpoint stays: its gradients are not part of a state.
  if (stopped && gradients.empty()) checkpoint.save_checked();
  if (average) average->swap();
  if (inputs.options.validation.restore_best && !stopped && validation.has_best()) checkpoint.restore_best();
  return stopped;
} catch (const NumericError& error) {
  drop_gradients();
  throw NumericError(error.what() + checkpoint.last_saved());
} catch (...) {
  drop_gradients();
  throw;
}

Trainer::Trainer(std::shared_ptr<Module> model, std::shared_ptr<DataLoader> training, TrainerOptions options,
                 std::shared_ptr<DataLoader> validation, TrainerCallbacks callbacks)
    : body_(std::make_unique<Body>(detail::RunInputs{std::move(model), std::move(training),
                                                     std::move(validation), std::move(options),
                                                     std::move(callbacks)})) {}
Trainer::~Trainer() = default;

void Trainer::resume(const StateDict& checkpoint, const std::string& path) {
  body_->checkpoint.load(checkpoint, path);
  body_->gradients.drop();
}

bool Trainer::done() const { return body_->done(); }

StateDict Trainer::state_dict() const { return body_->checkpoint.state(); }

TrainingResult Trainer::fit() {
  Body& run = *body_;
  const TrainerOptions& options = run.inputs.options;
  if (const double rate = options.optimizer.learning_rate; run.progress.base_rate() < rate)
    log(LogLevel::info,
        fmt::format(
            "[train] {} steps are few for this format: the learning rate is {:.2g}, {} from {} steps on",
            total_steps(run.inputs), run.progress.base_rate(), rate, options.update.full_rate_steps));
  const bool stopped = run.train();
  run.ranges.warn_of_limits();
  const EarlyStopping& early = run.validation.early();
  return {.epochs = run.progress.position().epoch,
          .steps = run.progress.position().step,
          .stopped = stopped,
          .stopped_early = early.should_stop() && !run.progress.finished(),
          .ranges_limited = run.ranges.limited(),
          .validation = run.validation.last(),
          .start = run.validation.start(),
          .best_epoch = early.best_epoch(),
          .best_accuracy = early.best_accuracy(),
          .best_score = early.best_score()};
}

}  // namespace fq
