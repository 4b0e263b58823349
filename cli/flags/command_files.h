#pragma once

/// Files of a command: checks before it starts, and files that earlier phases of a recipe will write.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/network/network.h"

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

/// The files that the phases of a recipe will write, known before the first phase runs.
class PlannedFiles {
 public:
  /// A phase will write a checkpoint of this network, with values that are not known yet.
  void add(const std::string& path, const Network& network);
  /// A phase will write this file; what it holds depends on what the phase finds.
  void add(const std::string& path);

  [[nodiscard]] bool holds(const std::string& path) const;
  /// The network of a checkpoint, planned or there, the caller's own; nullopt where it depends on what a
  /// phase finds. Throws as load_network.
  [[nodiscard]] std::optional<Network> network(const std::string& path) const;
  /// Throws FileError naming the flag unless the file is planned or exists.
  void check_there(const std::string& command, const std::string& flag, const std::string& path) const;

 private:
  std::map<std::string, std::optional<Identity>> identities_;  // empty if it is not known
};

/// Gives quantizers without a range the range 1, for checks alone: a phase before calibrates them.
void stand_in_ranges(Network& network);

}  // namespace fq::cli
