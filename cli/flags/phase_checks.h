#pragma once

/// Checks that plans share.

#include "fakequant/cli/data.h"
#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/flags/planned_files.h"

namespace fq::cli {

/// A network that a command runs on data. `network` is empty if an earlier phase writes the checkpoint and
/// what it will hold is not known yet.
struct RunningNetwork {
  std::optional<Network> network;
  std::shared_ptr<const Dataset> data;
};

/// Opens the network and its data, and checks that they fit and, unless the checkpoint is planned, that the
/// network is calibrated. `task`: replaces the network's own, unless null.
[[nodiscard]] RunningNetwork check_running(const std::string& checkpoint, const DataOptions& data,
                                           const TaskText* task, Labels labels, const PlannedFiles& planned,
                                           const std::string& command);

}  // namespace fq::cli
