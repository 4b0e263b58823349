#pragma once

/// Flags of run directories.

#include <string>

#include "fakequant/cli/flags/flags.h"

namespace fq::cli {

/// --keep, --log: for commands that train.
void add_run_folder_flags(FlagSet& set);
/// Throws ArgumentError for those flags without a run directory, and for words of --log that are none.
void check_run_flags(const Flags& flags);
/// Epochs whose checkpoints are kept, of --keep.
[[nodiscard]] std::int64_t kept_epochs(const Flags& flags);
/// Whether --log names it: "csv", "tensorboard".
[[nodiscard]] bool logs(const Flags& flags, const std::string& name);

}  // namespace fq::cli
