#include "fakequant/cli/flags/phase_checks.h"

#include "fakequant/cli/data.h"
#include "fakequant/cli/engine_run.h"
#include "fakequant/cli/engines/engine_home.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/cli/tables/inspect_calibration.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/network/detail/data_checks.h"

namespace fq::cli {
namespace {

/// The network that a command reads, and the data that it runs it on; nothing where it is not known yet.
std::optional<Network> check_running(const Flags& flags, const PlannedFiles& planned, bool labels) {
  (void)flags.integer("batch", 1, 1 << 20);
  const std::string path = flags.required("checkpoint");
  auto network = planned.network(path);
  if (!network) {
    (void)open_data(flags, flags.text("split"), 0, labels);
    return network;
  }
  if (flags.knows("metrics")) take_task(*network, flags);
  const auto data =
      open_data_for(*network, flags, flags.text("split"), labels ? Labels::needed : Labels::none);
  if (labels) check_task(*network, *data, flags.command());
  if (!planned.holds(path)) check_calibrated(*network, flags.command());
  return network;
}

}  // namespace

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

void check_fold(const Flags& flags, PlannedFiles& planned) {
  const std::string path = flags.required("checkpoint"), out = flags.required("output");
  auto network = flags.given("data") ? check_running(flags, planned, true) : planned.network(path);
  if (!network) return planned.add(out);
  check_not_compressed(*network, "fold", path);
  network->fold();
  planned.add(out, *network);
}

void check_predict(const Flags& flags, PlannedFiles& planned) {
  (void)check_running(flags, planned, false);
  planned.add(flags.required("output"));
}

void check_compress(const Flags& flags, PlannedFiles& planned) {
  const std::string path = flags.required("checkpoint");
  const auto network = planned.network(path);
  if (network) check_compresses(*network, flags);
  planned.add(flags.required("output"));
}

void check_verify(const Flags& flags, PlannedFiles& planned) {
  (void)flags.required("model");
  planned.check_there(flags, "model");
  if (flags.choice("target", {"ort", "tensorrt"}) != "ort") return;
  check_engine_flags(flags);
  const auto engines = chosen_engines(flags);
  const auto network = check_running(flags, planned, false);
  for (const VerifyEngine* engine : engines)
    if (network) check_target(*engine, *network);
}

void check_programs(const Flags& flags) {
  if (flags.command() != "verify" || flags.text("target") != "ort") return;
  for (const VerifyEngine* engine : chosen_engines(flags)) check_packages(flags, *engine);
}

void check_inspect(const Flags& flags, PlannedFiles& planned) {
  (void)flags.required("file");
  if (!flags.on("calibration")) check_no_calibration_flags(flags);
  for (const char* flag : {"file", "data", "state", "plan", "config"}) planned.check_there(flags, flag);
}

}  // namespace fq::cli
