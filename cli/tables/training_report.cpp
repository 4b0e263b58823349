#include "fakequant/cli/tables/training_report.h"

#include <fmt/format.h>

#include "fakequant/core/log.h"
#include "fakequant/train/loop/checkpoint.h"

namespace fq::cli {
namespace {

// The estimate of the remaining time waits for some steps, because the first ones allocate memory.
constexpr double kSecondsMeasured = 2, kSecondsWorthAWord = 5;
constexpr std::int64_t kStepsMeasured = 3;

}  // namespace

TrainingReport::TrainingReport(Output& output, std::string command, std::int64_t batch, std::string samples,
                               bool accuracy)
    : output_(output),
      command_(std::move(command)),
      samples_(std::move(samples)),
      batch_(batch),
      accuracy_(accuracy) {}

TrainerCallbacks TrainingReport::callbacks() {
  return {.on_step = [this](const StepReport& step) { on_step(step); },
          .on_epoch = [this](const EpochReport& epoch) { on_epoch(epoch); },
          .on_checkpoint = {}};
}

void TrainingReport::on_step(const StepReport& step) {
  images_per_second_ = step.images_per_second;
  loader_share_ = step.loader_share;
  print_remaining_time(step);
  output_.progress({fmt::format("{} {}/{}", command_, step.epoch + 1, step.epochs), step.step, step.steps,
                    step.loss, accuracy_ ? step.accuracy : -1, step.images_per_second, step.seconds_left,
                    samples_});
}

/// Prints the remaining time once, unless the run ends soon.
void TrainingReport::print_remaining_time(const StepReport& step) {
  if (printed_time_ || ++steps_seen_ < kStepsMeasured || watch_.seconds() < kSecondsMeasured) return;
  printed_time_ = true;
  if (step.seconds_left < kSecondsWorthAWord) return;
  output_.line(
      fmt::format("about {} for {} more steps", duration(step.seconds_left), step.steps - step.step));
}

/// Returns the validation scores as text, and adds them to the JSON object of the epoch.
std::string TrainingReport::validation_text(const Evaluation& validation) {
  std::string text = ", validation";
  // The run record and the result have the same keys with "val_".
  last_["val_loss"] = validation.loss;
  if (accuracy_) {
    text += fmt::format(" {:.2f} %", 100 * validation.accuracy);
    last_["val_accuracy"] = 100 * validation.accuracy;
  } else {
    text += fmt::format(" loss {:.4f}", validation.loss);
  }
  if (!validation.metrics.empty()) text += ", " + metrics_text(validation.metrics);
  for (const auto& [name, value] : validation.metrics) last_["val_" + name] = value;
  return text;
}

void TrainingReport::on_epoch(const EpochReport& epoch) {
  std::string text = fmt::format("epoch {}/{}: loss {:.4f}", epoch.epoch + 1, epoch.epochs, epoch.loss);
  if (accuracy_) text += fmt::format(", accuracy {:.2f} %", 100 * epoch.accuracy);
  last_ = {{"event", "epoch"},
           {"command", command_},
           {"epoch", epoch.epoch + 1},
           {"epochs", epoch.epochs},
           {"loss", epoch.loss}};
  if (accuracy_) last_["accuracy"] = 100 * epoch.accuracy;
  if (epoch.validation) {
    text += validation_text(*epoch.validation) + (epoch.best ? " (best)" : "");
    last_["best"] = epoch.best;
  }
  last_["lr"] = epoch.learning_rate;
  last_["images_per_second"] = images_per_second_;
  last_["seconds"] = epoch.seconds;
  text += fmt::format(", {:.0f} {}/s, {}", images_per_second_, samples_, duration(epoch.seconds));
  // Printed once, after the first epoch: every step needs the same memory.
  const bool first = memory_.empty() && plan_.peak > 0;
  if (first) {
    memory_ = {{"planned_peak", plan_.peak},
               {"measured_peak", epoch.peak_memory},
               {"saved_activations", plan_.saved_activations}};
    last_["memory"] = memory_;
  }
  output_.record(text, last_);
  if (first)
    output_.line(fmt::format("memory of a step: planned peak {}, measured {}; saved activations {}",
                             megabytes(plan_.peak), megabytes(epoch.peak_memory),
                             megabytes(plan_.saved_activations)));
}

void TrainingReport::print_start(const Evaluation& start, bool is_best, nlohmann::ordered_json& found) {
  found["start_score"] = start.score;
  if (accuracy_) found["start_accuracy"] = 100 * start.accuracy;
  found["start_is_best"] = is_best;
  if (!is_best) return;
  log(LogLevel::warning,
      fmt::format("[{}] no epoch was better in validation than the start of the run ({}), which is in the "
                  "file of the best epoch: use another --lr, or more --epochs",
                  command_,
                  accuracy_ ? fmt::format("{:.2f} %", 100 * start.accuracy)
                            : fmt::format("loss {:.4f}", start.loss)));
}

nlohmann::ordered_json TrainingReport::finish(const TrainingResult& result, std::int64_t before,
                                              const std::string& path) {
  nlohmann::ordered_json found{{"output", path},
                               {"epochs", result.epochs},
                               {"steps", result.steps},
                               {"stopped_early", result.stopped_early}};
  if (result.ranges_limited > 0) found["ranges_held"] = result.ranges_limited;
  for (const auto& [key, value] : last_.items())
    // The result has the scores of the last epoch.
    if (key == "loss" || key == "accuracy" || key.starts_with("val_")) found[key] = value;
  const std::string steps = before == 0 ? fmt::format("{} steps", result.steps)
                                        : fmt::format("{} of {} steps", result.steps - before, result.steps);
  std::string text = fmt::format("{} in {}, {}", steps, duration(watch_.seconds()), path);
  // A run that writes to a device (/dev/null) has no file of the best epoch.
  if (result.best_epoch >= 0 && allows_sibling_files(path)) {
    const std::string best = best_checkpoint_path(path);
    found.update({{"best", best}, {"best_epoch", result.best_epoch + 1}});
    if (accuracy_) found["best_accuracy"] = 100 * result.best_accuracy;
    found["best_score"] = result.best_score;
    text += fmt::format("; the best epoch, {}, in {}", result.best_epoch + 1, best);
  }
  found["seconds"] = watch_.seconds();
  // batch_ counts the samples of a whole step, over all micro-batches.
  if (images_per_second_ > 0) found["ms_per_step"] = 1000 * double(batch_) / images_per_second_;
  found["loader_share"] = loader_share_;
  if (!memory_.empty()) found["memory"] = memory_;
  output_.line(text);
  if (result.start) print_start(*result.start, result.best_epoch < 0, found);
  return found;
}

}  // namespace fq::cli
