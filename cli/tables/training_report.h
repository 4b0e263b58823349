#pragma once

/// Progress and result of a training run, printed during the run.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "fakequant/cli/tables/output.h"
#include "fakequant/train/loop/trainer.h"
#include "fakequant/train/memory_plan.h"

namespace fq::cli {

class TrainingReport {
 public:
  /// `samples`: noun for the samples (sample_noun). `accuracy`: whether the outputs are classes, so that an
  /// accuracy exists.
  TrainingReport(Output& output, std::string command, std::int64_t batch, std::string samples, bool accuracy);
  TrainingReport(const TrainingReport&) = delete;  // callbacks refer to it
  TrainingReport& operator=(const TrainingReport&) = delete;

  [[nodiscard]] TrainerCallbacks callbacks();
  /// Returns true if the run has an accuracy.
  [[nodiscard]] bool has_accuracy() const noexcept { return accuracy_; }
  /// Returns the JSON object of the last epoch.
  [[nodiscard]] const nlohmann::ordered_json& last() const noexcept { return last_; }
  /// Sets the planned memory of a step. After the first epoch, the report prints it next to the measured
  /// memory.
  void expect(const MemoryPlan& plan) { plan_ = plan; }
  /// Prints the last line and returns the result of the whole run for machines. `before` is the number of
  /// steps before this start.
  [[nodiscard]] nlohmann::ordered_json finish(const TrainingResult& result, std::int64_t before,
                                              const std::string& path);

 private:
  void on_step(const StepReport& step);
  void on_epoch(const EpochReport& epoch);
  void print_remaining_time(const StepReport& step);
  void print_start(const Evaluation& start, bool is_best, nlohmann::ordered_json& found);
  [[nodiscard]] std::string validation_text(const Evaluation& validation);

  Output& output_;
  std::string command_, samples_;
  std::int64_t batch_;
  bool accuracy_, printed_time_ = false;
  std::int64_t steps_seen_ = 0;
  double images_per_second_ = 0, loader_share_ = 0;
  nlohmann::ordered_json last_, memory_;
  MemoryPlan plan_;
  Stopwatch watch_;
};

}  // namespace fq::cli
