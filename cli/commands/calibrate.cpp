#include <nlohmann/json.hpp>
#include <sstream>

#include <fmt/format.h>

#include "fakequant/cli/calibration.h"
#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/fine_tuning/warnings.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/cli/quantization.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/layers/quantize.h"

namespace fq::cli {
namespace {

std::string output_of(const Flags& flags) {
  return flags.text("state").empty() ? flags.required("output") : flags.text("output");
}

void check_float(const Network& network, const Flags& flags) {
  check_not_compressed(network, "calibrate", flags.text("checkpoint"));
  FQ_CHECK(!network.quantized(), "calibrate", "{} is quantized already: give a float checkpoint",
           flags.text("checkpoint"));
}

/// Null where ranges come from elsewhere. `network` is null where it is not known yet.
std::shared_ptr<const Dataset> open_images(const Flags& flags, Network* network) {
  if (!flags.given("data") && (flags.given("import") || flags.given("merge"))) return nullptr;
  const std::string split = flags.text("split");
  if (network == nullptr) return open_data(flags, split, 0, false);
  try {
    return open_data_for(*network, flags, split);
  } catch (const Error&) {  // labels are welcome, and not asked for
    return open_data_for(*network, flags, split, Labels::none);
  }
}

}  // namespace

FlagSet calibrate_flags() {
  FlagSet set(
      "calibrate", "Puts quantizers into a float network and chooses their ranges on training samples.",
      "CHECKPOINT|--model FILE|NAME --init FILE --data FILE|--import FILE|--merge FILE.. -o FILE [flags]");
  set.group("Files")
      .argument("checkpoint", "FILE", "a float checkpoint")
      .output("output,o", "FILE", "the quantized checkpoint", kind::checkpoint)
      .value("import", "FILE",
             "ranges from a safetensors state of ModelOpt or pytorch-quantization; --data is then for "
             "quantizers that it has none of");
  add_model_flags(set);
  add_init_flags(set, false);
  set.need({"split", "batch"}, "data");
  add_data_flags(set, "train");
  add_task_flags(set);
  add_quantization_flags(set);
  set.need({"mask"}, "data");
  add_calibration_flags(set);
  add_mask_flag(set);
  add_state_flags(set);
  add_general_flags(set);
  return set;
}

void check_calibrate(const Flags& flags, PlannedFiles& planned) {
  const std::string path = output_of(flags);
  for (const char* flag : {"import", "config"}) planned.check_there(flags, flag);
  auto network = starting_network(flags, flags.text("split"), planned).network;
  if (network) check_float(*network, flags);
  for (const auto& state : flags.list("merge")) planned.check_there(flags, "merge", state);
  const auto data = open_images(flags, network ? &*network : nullptr);
  if (data) (void)samples_to_calibrate(data, flags);
  if (network) (void)read_mask(*network, flags);
  const bool known = network && plan_quantization(*network, flags, planned, data != nullptr);
  if (flags.given("state")) planned.add(flags.text("state"));
  if (path.empty()) return;
  known ? planned.add(path, *network) : planned.add(path);
}

nlohmann::ordered_json calibrate(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  const std::string path = output_of(flags);
  const auto quantization = read_quantization(flags);
  const auto lock = lock_state(flags);
  auto [start, initialised] = starting_network(flags, flags.text("split"), {});
  Network network = std::move(start).value();
  if (!initialised.empty()) output.line(initialised);
  check_float(network, flags);
  take_task(network, flags);
  (void)read_mask(network, flags);
  const auto data = open_images(flags, &network);
  const Stopwatch watch;
  const auto collected = quantize_and_calibrate(network, flags, quantization, data, output);
  warn_unless_exportable(network, "calibrate");
  if (!path.empty() && is_first_rank()) network.save(path);
  if (collected) save_collected(network, flags, *collected);
  std::ostringstream table;
  table.exceptions(std::ios::badbit);  // a text without memory is not cut
  print_quant_summary(network.module(), table);
  output.line(table.str() + fmt::format("calibrated in {}, {}", duration(watch.seconds()),
                                        path.empty() ? flags.text("state") : path));
  const std::string preset = network.identity().preset();
  return {{"output", path},
          {"preset", preset.empty() ? nlohmann::json() : nlohmann::json(preset)},
          {"quantizers", named_quantizers(network.module()).size()},
          {"seconds", watch.seconds()}};
}

}  // namespace fq::cli
