#pragma once

/// The commands `fakequant dataset ..`.

#include "fakequant/cli/command.h"

namespace fq::cli {

/// Adds help, json and force: the flags of commands that compute nothing.
void add_plain_flags(FlagSet& set);
FlagSet check_data_flags();
nlohmann::ordered_json check_data(const Flags& flags, Output& output);
FlagSet show_data_flags();
nlohmann::ordered_json show_data(const Flags& flags, Output& output);

/// Runs a part of `in_python`, a conversion: replaces this process by the module fakequant.data of Python,
/// with `arguments`. Throws ArgumentError if Python cannot be started.
[[noreturn]] void convert_data(const Command& part, const std::vector<std::string>& arguments);

}  // namespace fq::cli
