#pragma once

/// The settings keep_epochs and log of run directories.

#include <string>

#include "fakequant/cli/flags/flags.h"

namespace fq::cli {

/// Throws ArgumentError for those settings without a run directory, and for unknown words of `log`.
void check_run_flags(const Flags& flags);
/// Returns the number of epochs whose checkpoints are kept.
[[nodiscard]] std::int64_t kept_epochs(const Flags& flags);
/// Returns true if `log` names it: "csv", "tensorboard".
[[nodiscard]] bool logs(const Flags& flags, const std::string& name);

}  // namespace fq::cli
