#pragma once

/// The commands on several runs.

#include "fakequant/cli/command.h"

namespace fq::cli {

FlagSet compare_flags();
nlohmann::ordered_json compare(const Flags& flags, Output& output);
FlagSet sweep_flags();
nlohmann::ordered_json sweep(const Flags& flags, Output& output);

}  // namespace fq::cli
