#pragma once

/// Manual pages and completions of shells, made from the tables that --help is made from.

#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"

namespace fq::cli {

/// A command as its words on the line.
struct ManualEntry {
  std::string name, summary;
  FlagSet set;
};
/// All commands, those of two words too, in the order of the help.
[[nodiscard]] std::vector<ManualEntry> manual_entries();

/// The page of one command, and that of all (man 7 man).
[[nodiscard]] std::string manual_page(const ManualEntry& entry);
[[nodiscard]] std::string manual_overview(const std::vector<ManualEntry>& entries);

/// Completions of commands and flags, and of files elsewhere; zsh reads the one of bash through bashcompinit.
[[nodiscard]] std::string bash_completion(const std::vector<ManualEntry>& entries);
[[nodiscard]] std::string zsh_completion();
[[nodiscard]] std::string fish_completion(const std::vector<ManualEntry>& entries);

/// Writes all of them below a folder such as PREFIX/share, each where the system looks for it. Throws
/// FileError and SystemError.
void write_manual(const std::string& folder);

}  // namespace fq::cli
