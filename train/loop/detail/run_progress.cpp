#include "fakequant/train/loop/detail/run_progress.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/detail/whole_number.h"
#include "fakequant/train/qat_defaults.h"

namespace fq::detail {
namespace {

std::int64_t read_count(const StateDict& state, const char* name) {
  return whole_number(state, name, "resume");
}

RunPosition read_position(const StateDict& state) {
  RunPosition p;
  p.epoch = read_count(state, "epoch");
  p.step = read_count(state, "step");
  p.batch = read_count(state, "batch");
  p.seed = seed_number(state, "resume");
  p.loss_sum = state.attribute("loss_sum").get<double>();
  p.correct = read_count(state, "correct");
  p.count = read_count(state, "count");
  return p;
}

/// Throws unless the positions of the run and its loader agree. The loader may be one epoch ahead, if the
/// validation of its last epoch is missing.
void check_position(const RunPosition& p, const StateDict& loader, const DataLoader& data) {
  const std::int64_t epoch = read_count(loader, "epoch"), position = read_count(loader, "position");
  FQ_CHECK(epoch == p.epoch || (epoch == p.epoch + 1 && position == 0), "resume",
           "the progress is damaged: {} epochs are done, and the data is at sample {} of epoch {}", p.epoch,
           position, epoch + 1);
  const std::int64_t batch = data.options().batch_size, size = data.data().size();
  if (read_count(loader, "size") != size || read_count(loader, "batch_size") != batch)
    return;                                                              // the loader reports the difference
  const std::int64_t before = p.batch - (position + batch - 1) / batch;  // batches of earlier epochs
  // Batches of earlier epochs must be whole epochs. A file with other numbers was changed or damaged.
  FQ_CHECK(position <= size && before % data.batches_per_epoch() == 0 &&
               before / data.batches_per_epoch() == epoch && p.step <= p.batch,
           "resume",
           "the progress is damaged: {} batches in {} steps, and the data is at sample {} of epoch {}",
           p.batch, p.step, position, epoch + 1);
  FQ_CHECK(p.correct <= p.count && p.count <= size && std::isfinite(p.loss_sum), "resume",
           "the progress is damaged: {} of {} samples were right, with a sum of losses of {}", p.correct,
           p.count, p.loss_sum);
}

template <class TimePoint>
double seconds_since(TimePoint start) {
  return std::chrono::duration<double>(TimePoint::clock::now() - start).count();
}

}  // namespace

RunProgress::RunProgress(const RunInputs& inputs)
    : inputs_(inputs), schedule_(make_schedule(inputs.options.schedule, total_steps(inputs))) {
  const ScheduleOptions& schedule = inputs.options.schedule;
  if (schedule.kind == "plateau") plateau_.emplace(schedule.step_factor, schedule.patience);
  position_.seed = inputs.options.seed;
}

std::int64_t RunProgress::epochs() const {
  // The last epoch of a given number of steps may be incomplete, but the run begins it.
  const std::int64_t each = steps_per_epoch(inputs_), steps = inputs_.options.steps;
  return steps > 0 ? (steps + each - 1) / each : inputs_.options.epochs;
}

bool RunProgress::finished() const {
  const std::int64_t steps = inputs_.options.steps;
  if (steps == 0) return position_.epoch >= inputs_.options.epochs;
  // A run of a given number of steps may end within an epoch. If it ends with an epoch, that epoch counts
  // only after its validation.
  if (position_.step != steps) return position_.step > steps;
  return ends_within_epoch() || position_.epoch == epochs();
}

bool RunProgress::ends_within_epoch() const {
  const std::int64_t steps = inputs_.options.steps;
  return steps > 0 && position_.step == steps && steps % steps_per_epoch(inputs_) != 0;
}

double RunProgress::base_rate() const {
  const TrainerOptions& options = inputs_.options;
  return short_run_rate(options.optimizer.learning_rate, total_steps(inputs_),
                        options.update.full_rate_steps);
}

double RunProgress::learning_rate() const {
  return base_rate() * schedule_(position_.step) * (plateau_ ? plateau_->factor() : 1);
}

// Batches of other ranks count, too; their losses arrive with the results of the step.
void RunProgress::add_batch(std::int64_t samples) {
  position_.count += samples;
  ++position_.batch;
  timed_samples_ += samples;
}

void RunProgress::add_result(const SharedStep::BatchResult& result) {
  // Losses are means over a batch; the epoch's mean weights them by samples.
  position_.loss_sum += result.loss * static_cast<double>(result.samples);
  position_.correct += result.correct;
}

void RunProgress::end_step() {
  ++position_.step;
  ++timed_steps_;
}

void RunProgress::end_epoch() {
  // A run that ends within an epoch leaves it unfinished.
  if (inputs_.training->epoch() <= position_.epoch) return;
  ++position_.epoch;
  position_.loss_sum = 0;
  position_.correct = position_.count = 0;
}

void RunProgress::add_score(double score) {
  if (plateau_) plateau_->update(score);
}

void RunProgress::start_clock() {
  start_ = Clock::now();
  timed_steps_ = 0;
  start_epoch_clock();
}

void RunProgress::start_epoch_clock() {
  epoch_start_ = Clock::now();
  timed_samples_ = 0;
  loading_ = 0;
}

double RunProgress::seconds() const { return seconds_since(start_); }

StepReport RunProgress::report(double learning_rate) const {
  // Avoids a division by zero in the first report.
  const double seconds = std::max(seconds_since(epoch_start_), 1e-9);
  // Per step over the whole run, so that validations count; speed is over this epoch.
  const double per_step = seconds_since(start_) / static_cast<double>(timed_steps_);
  const std::int64_t steps = total_steps(inputs_);
  return {.epoch = position_.epoch,
          .epochs = epochs(),
          .step = position_.step,
          .steps = steps,
          .loss = position_.mean_loss(),
          .accuracy = position_.accuracy(),
          .learning_rate = learning_rate,
          .images_per_second = static_cast<double>(timed_samples_) / seconds,
          .seconds_left = per_step * static_cast<double>(steps - position_.step),
          .loader_share = loading_ / seconds};
}

std::string RunProgress::place() const {
  return fmt::format(" (step {}, epoch {})", position_.step, position_.epoch + 1);
}

void RunProgress::save(StateDict& checkpoint) const {
  const TrainerOptions& options = inputs_.options;
  StateDict out;
  out.set_attribute("epoch", position_.epoch);
  out.set_attribute("step", position_.step);
  out.set_attribute("batch", position_.batch);
  out.set_attribute("seed", position_.seed);
  out.set_attribute("loss_sum", position_.loss_sum);
  out.set_attribute("correct", position_.correct);
  out.set_attribute("count", position_.count);
  out.set_attribute("length", options.steps > 0 ? nlohmann::json{{"steps", options.steps}}
                                                : nlohmann::json{{"epochs", options.epochs}});
  if (plateau_) out.merge(plateau_->state_dict(), "plateau");
  checkpoint.merge(out, "progress");
}

RunPosition RunProgress::read(const StateDict& progress, const std::string& path) const try {
  const RunPosition position = read_position(progress);
  check_position(position, progress.sub("loader"), *inputs_.training);
  return position;
} catch (const ArgumentError& error) {
  throw FileError(path, "progress", fmt::format("{} (in {})", error.what(), path));
}

void RunProgress::load(const RunPosition& position, const StateDict& progress) {
  // The plateau checks its state before the position changes.
  if (plateau_) plateau_->load_state(progress.sub("plateau"));
  position_ = position;
}

}  // namespace fq::detail
