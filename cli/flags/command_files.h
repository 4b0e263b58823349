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

/// Creates the folders of output files. Throws ArgumentError if an output is also an input of this call or of
/// `others`, or if two outputs are the same file, also through links. Throws ArgumentError without --force if
/// an output exists and is of another kind. Throws FileError and SystemError as check_writable
/// (core/io/detail/atomic_file.h). Returns the created folders, the innermost first.
std::vector<std::string> check_files(const FlagSet& set, const Flags& flags,
                                     const std::vector<ReadFile>& others = {});
/// Removes the empty folders of a command that failed before it wrote a file.
void remove_empty(const std::vector<std::string>& folders) noexcept;
/// Returns the files that the command would write. Throws ArgumentError as `check_files`, and changes
/// nothing.
[[nodiscard]] std::vector<std::string> files_to_write(const FlagSet& set, const Flags& flags,
                                                      const std::vector<ReadFile>& others = {});

/// Files that the phases of a recipe will write, known before the first phase runs.
class PlannedFiles {
 public:
  /// Adds a checkpoint of this network that a phase will write. Its values are not known yet.
  void add(const std::string& path, const Network& network);
  /// Adds a file that a phase will write. Its content depends on the results of the phase.
  void add(const std::string& path);

  [[nodiscard]] bool holds(const std::string& path) const;
  /// Returns a copy of the network of a planned or existing checkpoint. Returns nullopt if the network
  /// depends on the results of a phase. Throws as load_network.
  [[nodiscard]] std::optional<Network> network(const std::string& path) const;
  /// Throws FileError naming the flag unless the file is planned or exists.
  void check_there(const std::string& command, const std::string& flag, const std::string& path) const;

 private:
  std::map<std::string, std::optional<Identity>> identities_;  // empty: not known yet
};

/// Sets the range 1 for quantizers without a range. For checks only: an earlier phase will calibrate them.
void stand_in_ranges(Network& network);

}  // namespace fq::cli
