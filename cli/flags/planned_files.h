#pragma once

/// What the phases of a recipe will have written, before the first one has run.

#include <map>
#include <optional>
#include <string>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/network/network.h"

namespace fq::cli {

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
