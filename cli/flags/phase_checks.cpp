#include "fakequant/cli/flags/phase_checks.h"

#include "fakequant/cli/data.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/network/detail/data_checks.h"

namespace fq::cli {
RunningNetwork check_running(const std::string& checkpoint, const DataOptions& data, const TaskText* task,
                             Labels labels, const PlannedFiles& planned, const std::string& command) {
  RunningNetwork out{planned.network(checkpoint), nullptr};
  if (!out.network) {
    const bool chosen = task != nullptr && task->loss;
    const LabelType type = chosen ? parse_task(*task, command).labels() : LabelType::numbers;
    out.data = open_any_data(data.data, data.split, labels == Labels::needed, type);
    return out;
  }
  Network& network = *out.network;
  if (task != nullptr) take_task(network, *task, command);
  out.data = open_data_for(network, data.data, data.split, labels, command);
  if (labels == Labels::needed) check_task(network, *out.data, command);
  if (!planned.holds(checkpoint)) check_calibrated(network, command);
  return out;
}

}  // namespace fq::cli
