#pragma once

/// Arguments of a Trainer, their checks, and the settings of them that checkpoints hold.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

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

/// Returns the settings of a run as a JSON object of numbers, strings and booleans, named as the fields of
/// TrainerOptions and LoaderOptions. Of an optimizer, a schedule and ranges, it has only the fields that are
/// used. `validation` may be null. Leaves out settings that may change when a run is resumed: epochs,
/// patience, files, devices, and settings of speed and memory.
[[nodiscard]] nlohmann::json run_settings(const TrainerOptions& options, const DataLoader& training,
                                          const DataLoader* validation);

/// Returns `settings` of an older version, with the defaults of the settings that it did not have.
[[nodiscard]] nlohmann::json completed(nlohmann::json settings);

/// Throws ArgumentError if `settings`, read from the checkpoint `path`, use an option that this version does
/// not have any more. Ignores removed options that were off.
void check_removed_settings(const nlohmann::json& settings, const std::string& path);

/// Returns texts, for example "learning_rate is 0.004 there, 0.01 here", one for each common field that
/// differs.
[[nodiscard]] std::vector<std::string> differences(const nlohmann::json& there, const nlohmann::json& here);

}  // namespace fq::detail
