#pragma once

/// How training samples are drawn and changed: --augment, --sample and --sample-weights.

#include "fakequant/cli/data.h"
#include "fakequant/cli/flags/flags.h"
#include "fakequant/train/data/loader.h"

namespace fq::cli {

/// "shift=PIXELS,rotate=DEGREES,..": all that --augment takes.
[[nodiscard]] std::string augment_help();
/// --sample and --sample-weights.
void add_sampling_flags(FlagSet& set);

/// "shift=0.6,resizedcrop=0.08:1,randaugment=2:9"; flip=1 is hflip=0.5. Throws ArgumentError naming the
/// nearest key.
[[nodiscard]] AugmentOptions read_augment(const std::string& list, const std::string& command);
/// What the flags ask for, of a run of that task: labels that are mixed become what its loss takes. Throws
/// ArgumentError for what the task has no use for.
void take_augmentation(LoaderOptions& options, const Flags& flags, const Task& task, const Dataset& data);

}  // namespace fq::cli
