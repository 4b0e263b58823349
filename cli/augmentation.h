#pragma once

/// Sampling and augmentation of training data.

#include <optional>
#include <string>

#include "fakequant/cli/data.h"
#include "fakequant/cli/flags/flags.h"
#include "fakequant/train/data/loader.h"

namespace fq::cli {

struct SamplingOptions {
  std::string augment = {};                       ///< "shift=0.6,rotate=7.5"
  bool balanced = false;                          ///< draws each class equally often
  std::optional<std::string> class_weights = {};  ///< "1:2:0.5", draws of each class in proportion
};

/// Adds --augment.
void add_augment_flag(FlagSet& set, SamplingOptions& options);
/// Adds the settings loader.balanced and loader.class_weights.
void add_sampling_settings(FlagSet& set, SamplingOptions& options);

/// Parses a list, "shift=0.6,resizedcrop=0.08:1,randaugment=2:9". "flip=1" means hflip=0.5. Throws
/// ArgumentError naming the nearest key.
[[nodiscard]] AugmentOptions read_augment(const std::string& list, const std::string& command);
/// Copies the options to a loader for data of that task. Mixed labels become the labels that the loss
/// expects. Throws ArgumentError for an unknown change, naming the nearest, and for a change that does not
/// apply to the task.
void take_augmentation(LoaderOptions& loader, const SamplingOptions& options, const Task& task,
                       const Dataset& data, const std::string& command);

}  // namespace fq::cli
