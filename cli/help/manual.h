#pragma once

/// Manual pages and shell completions, generated from the tables of --help.

#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"

namespace fq::cli {

/// A command with its words: "dataset show".
struct ManualEntry {
  std::string name, summary;
  FlagSet set;
};
/// Returns all commands, including commands of two words, in the order of the help.
[[nodiscard]] std::vector<ManualEntry> manual_entries();

/// Return the manual page of one command, and the overview (man 7 man).
[[nodiscard]] std::string manual_page(const ManualEntry& entry);
[[nodiscard]] std::string manual_overview(const std::vector<ManualEntry>& entries);

/// Return completions of commands and flags; other words complete as files. zsh loads the completion of bash
/// through bashcompinit.
[[nodiscard]] std::string bash_completion(const std::vector<ManualEntry>& entries);
[[nodiscard]] std::string zsh_completion();
[[nodiscard]] std::string fish_completion(const std::vector<ManualEntry>& entries);

/// Writes all manual pages and completions below a folder, for example PREFIX/share, at their standard paths.
/// Throws FileError and SystemError.
void write_manual(const std::string& folder);

}  // namespace fq::cli
