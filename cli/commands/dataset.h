#pragma once

/// The commands `fakequant dataset ..`.

#include "fakequant/cli/command.h"
#include "fakequant/cli/flags/flag_groups.h"

namespace fq::cli {

/// Adds help, json and force: the general flags of commands that compute nothing.
void add_plain_flags(FlagSet& set, GeneralOptions& options);
Command dataset_check_command();
Command dataset_show_command();

/// Runs a part of `in_python`, a conversion: replaces this process by the module fakequant.data of Python,
/// with `arguments`. Throws ArgumentError if Python cannot be started.
[[noreturn]] void convert_data(const Command& part, const std::vector<std::string>& arguments);

}  // namespace fq::cli
