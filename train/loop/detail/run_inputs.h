#pragma once

/// Arguments of a Trainer. All parts of a run share them.

#include <memory>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/loop/trainer.h"

namespace fq::detail {

/// Model, data, options and callbacks of a run.
struct RunInputs {
  std::shared_ptr<Module> model;
  std::shared_ptr<DataLoader> training;
  std::shared_ptr<DataLoader> validation;  ///< null without validation
  TrainerOptions options;
  TrainerCallbacks callbacks;
};

/// Returns the inputs unchanged. Throws ArgumentError that names the option, its value and the allowed
/// values. Logs a warning for inexact gradient sums, and for training data of a single class.
[[nodiscard]] RunInputs checked(RunInputs inputs);

/// Returns the number of optimizer steps of one epoch.
[[nodiscard]] std::int64_t steps_per_epoch(const RunInputs& inputs);
/// Returns the number of optimizer steps of the whole run.
[[nodiscard]] std::int64_t total_steps(const RunInputs& inputs);

}  // namespace fq::detail
