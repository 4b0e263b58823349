#pragma once

/// What becomes of a command's files, seen before it starts: nothing that it reads is written over, nothing
/// of another kind is replaced, and what it writes can be written.

#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"

namespace fq::cli {

/// A file that is read, and the flag that names it.
struct ReadFile {
  std::string flag, path;
};

/// Makes the folders that are to be made. Throws ArgumentError when a file to write is one of those read,
/// here or by `others`, through links too, or another one to write; when it is there and of another kind,
/// without --force; FileError and SystemError as check_writable (core/io/detail/atomic_file.h). Returns the
/// folders that were made, the inner ones first.
std::vector<std::string> check_files(const FlagSet& set, const Flags& flags,
                                     const std::vector<ReadFile>& others = {});
/// Removes those that are empty, as of a command that failed before it wrote anything.
void remove_empty(const std::vector<std::string>& folders) noexcept;
/// The files that would be written. Throws ArgumentError as `check_files`, and touches nothing.
[[nodiscard]] std::vector<std::string> files_to_write(const FlagSet& set, const Flags& flags,
                                                      const std::vector<ReadFile>& others = {});

}  // namespace fq::cli
