#pragma once

/// Optimizer and schedule of a training run.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/train/optimizer.h"
#include "fakequant/train/schedule.h"

namespace fq::cli {

struct OptimizationOptions {
  std::string optimizer = "adamw";  ///< a kind and its parameters: "adamw,beta1=0.8"
  std::optional<double> lr = {};    ///< the highest learning rate of the schedule
  double weight_decay = 0.01;
  std::string schedule = "onecycle";  ///< a kind and its parameters
  std::int64_t warm_up = 0;           ///< steps
  std::optional<double> momentum = {};
  bool nesterov = false;
  /// Parameters of optimizer and schedule that are given as settings, by their words in the flag.
  std::map<std::string, std::optional<std::string>> of_optimizer = {}, of_schedule = {};
};

/// Adds --optimizer, --weight-decay and --schedule.
void add_optimization_flags(FlagSet& set, OptimizationOptions& options);
/// Adds the settings optimizer.* and schedule.*.
void add_optimization_settings(FlagSet& set, OptimizationOptions& options);
/// Returns the options of --optimizer and its settings. Throws ArgumentError naming the nearest word.
[[nodiscard]] OptimizerOptions optimizer_options(const OptimizationOptions& options,
                                                 const std::string& command);
/// Returns the options of --schedule and its settings, with epochs as steps.
[[nodiscard]] ScheduleOptions schedule_options(const OptimizationOptions& options,
                                               std::int64_t steps_per_epoch, const std::string& command);

}  // namespace fq::cli
