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

/// An object of numbers, words and switches, named as the fields of TrainerOptions and LoaderOptions; of an
/// optimizer, a schedule and ranges only those that it reads. `validation` may be null. Left out is what a
/// run may be gone on with otherwise: epochs, patience, files, devices, and what changes speed and memory
/// only.
[[nodiscard]] nlohmann::json run_settings(const TrainerOptions& options, const DataLoader& training,
                                          const DataLoader* validation);

/// The same with what runs of before it could be set had: settings of files of earlier versions.
[[nodiscard]] nlohmann::json completed(nlohmann::json settings);

/// Throws ArgumentError if `settings`, read from the checkpoint `path`, use an option that this version does
/// not have any more. Ignores removed options that were off.
void check_removed_settings(const nlohmann::json& settings, const std::string& path);

/// "learning_rate is 0.004 there, 0.01 here", one for each field of both objects that differs.
[[nodiscard]] std::vector<std::string> differences(const nlohmann::json& there, const nlohmann::json& here);

}  // namespace fq::detail
