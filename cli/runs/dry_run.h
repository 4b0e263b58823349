#pragma once

/// --dry-run: what a command would do, found out without doing it.

#include <nlohmann/json_fwd.hpp>

#include "fakequant/cli/command.h"

namespace fq::cli {

/// Checks flags, data, network and files as the command does before it starts, and tells what it would write.
/// Throws what the command would throw; touches nothing.
nlohmann::ordered_json dry_run(const Command& command, const FlagSet& set, const Flags& flags,
                               Output& output);

}  // namespace fq::cli
