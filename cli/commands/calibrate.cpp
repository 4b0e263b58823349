#include <nlohmann/json.hpp>
#include <sstream>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/cli/quantization.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/layers/quantize.h"

namespace fq::cli {
namespace {

struct CalibrateOptions {
  std::string checkpoint, output;
  std::optional<std::string> import = {};  ///< file of ranges
  ModelOptions model;
  DataOptions data = {.split = "train"};
  TaskText task;
  QuantizationOptions quantization = {.command = "calibrate"};
  CalibrationOptions calibration;
  GeneralOptions general;
};

/// A network to calibrate.
struct Calibration {
  Network network;
  std::string initialised;
  std::shared_ptr<const Dataset> data;
  Quantization quantization;
};

// Calibrating a quantized network would choose other ranges for weights that are trained for the present
// ones.
void check_float(const Network& network, const std::string& checkpoint) {
  check_not_compressed(network, "calibrate", checkpoint);
  FQ_CHECK(!network.quantized(), "calibrate", "{} is already quantized: use a float checkpoint", checkpoint);
}

/// Opens the calibration data; null if ranges come from another source. `network` is null if it is not known
/// yet.
std::shared_ptr<const Dataset> open_images(const CalibrateOptions& options, Network* network) {
  const auto& [path, split, batch] = options.data;
  if (path.empty() && (options.import || !options.calibration.merge.empty())) return nullptr;
  check_given(path, "data", "calibrate");
  if (network == nullptr) return open_any_data(path, split, false, LabelType::numbers);
  try {
    return open_network_data(*network, path, split, Labels::needed, "calibrate");
  } catch (const Error&) {  // labels are optional
    return open_network_data(*network, path, split, Labels::none, "calibrate");
  }
}

std::string calibrated_text(const Network& network, double seconds, const std::string& file) {
  std::ostringstream table;
  table.exceptions(std::ios::badbit);  // throw instead of a truncated text without memory
  print_quant_summary(network.module(), table);
  return table.str() + fmt::format("calibrated in {}, {}", duration(seconds), file);
}

void calibrate(const CalibrateOptions& options, const Calibration& state, Output& output,
               nlohmann::ordered_json& result) {
  // The lock covers the whole run. Two processes that add samples to one state would otherwise overwrite each
  // other.
  const auto lock = lock_state(options.calibration);
  // Checked again: the state may have been written since the plan was made.
  check_calibration_options(options.calibration, "calibrate");
  // A handle of the planned network, which has its quantizers already.
  Network network = state.network;
  if (!state.initialised.empty()) output.line(state.initialised);
  const Stopwatch watch;
  output.line(quantization_text(options.quantization, state.quantization));
  const LoaderOptions batches{.batch_size = options.data.batch,
                              .shuffle = false,
                              .device = chosen_device(options.general, "calibrate")};
  const auto collected = choose_ranges(network, options.quantization, options.calibration, batches,
                                       options.import, state.data, output);
  warn_unless_exportable(network, "calibrate");
  const std::string& path = options.output;
  if (!path.empty() && is_first_rank()) network.save(path);
  if (collected) save_collected(network, options.calibration, *collected);
  output.line(calibrated_text(network, watch.seconds(), path.empty() ? options.calibration.state : path));
  const std::string preset = network.identity().preset();
  result = {{"output", path},
            {"preset", preset.empty() ? nlohmann::json() : nlohmann::json(preset)},
            {"quantizers", named_quantizers(network.module()).size()},
            {"seconds", watch.seconds()}};
}

FlagSet calibrate_flags(CalibrateOptions& options) {
  FlagSet set(
      "calibrate", "Puts quantizers into a float network and chooses their ranges on training samples.",
      "CHECKPOINT|--model FILE|NAME --init FILE --data FILE|--import FILE|--merge FILE.. -o FILE [flags]");
  set.need({"split", "batch", "mask"}, "data");
  set.group("Main flags")
      .argument(options.checkpoint, "checkpoint", "FILE", "a float checkpoint")
      .value(options.data.data, "data,d", "FILE", "HDF5 data set with groups of x and y");
  add_preset_flag(set, options.quantization);
  set.output(options.output, "output,o", "FILE", "the quantized checkpoint", kind::checkpoint);
  set.group("Network");
  add_model_flag(set, options.model);
  add_init_flags(set, options.model, false);
  set.group("Data")
      .value(options.data.split, "split", "GROUP", "the group of the data set to read")
      .value(options.data.batch, "batch,b", "SAMPLES", {1, 1 << 20}, "samples in a batch");
  add_task_flags(set, options.task);
  set.group("Quantization");
  add_calibrating_flags(set, options.quantization, options.calibration);
  add_mask_flag(set, options.calibration);
  set.value(options.import, "import", "FILE",
            "ranges from a safetensors state of ModelOpt or pytorch-quantization; --data calibrates "
            "quantizers without a range in it");
  add_state_flags(set, options.calibration);
  add_general_flags(set, options.general);
  return set;
}

std::string calibration_step(const CalibrateOptions& options, const Dataset* data) {
  std::string text = quantization_step(options.quantization);
  if (options.import) text += fmt::format(", with ranges of {}", *options.import);
  for (const auto& state : options.calibration.merge) text += fmt::format(", with the state {}", state);
  if (data == nullptr || options.quantization.skips_calibration()) return text;
  return text + fmt::format(", calibrate on {} samples of {}", data->size(), options.data.data);
}

/// Places quantizers if the config is known.
std::optional<Calibration> place(const CalibrateOptions& options, Start start,
                                 std::shared_ptr<const Dataset> data, const PlannedFiles& planned) {
  check_calibration_options(options.calibration, "calibrate");
  // A config or a checkpoint of an earlier phase is not known yet. Quantizers are then placed when the phase
  // runs.
  if (!start.network || (options.quantization.config && planned.holds(*options.quantization.config)))
    return std::nullopt;
  Calibration state{*start.network, start.initialised, std::move(data),
                    read_quantization(options.quantization)};
  (void)read_mask(state.network, options.calibration);
  place_quantizers(state.network, options.quantization, options.calibration, state.quantization,
                   state.data != nullptr && !options.quantization.skips_calibration());
  return state;
}

Plan plan_calibrate(const CalibrateOptions& options, PlannedFiles& planned) {
  const std::string& path = options.output;
  if (options.calibration.state.empty()) check_given(path, "output", "calibrate");
  // Files are checked first, because the other errors depend on their content.
  for (const auto& [flag, file] :
       {std::pair("import", options.import), {"config", options.quantization.config}})
    if (file) planned.check_there("calibrate", flag, *file);
  Start start = starting_network(options.checkpoint, options.model, options.task, options.data.data,
                                 options.data.split, planned, "calibrate");
  if (start.network) check_float(*start.network, options.checkpoint);
  if (start.network) take_task(*start.network, options.task, "calibrate");
  auto data = open_images(options, start.network ? &*start.network : nullptr);
  const auto samples = data ? samples_to_calibrate(data, options.calibration) : nullptr;
  const auto state = place(options, std::move(start), data, planned);
  for (const auto& file : options.calibration.merge) planned.check_there("calibrate", "merge", file);
  if (!options.calibration.state.empty()) planned.add(options.calibration.state);
  if (!path.empty()) state ? planned.add(path, state->network) : planned.add(path);
  Plan plan;
  plan.add(calibration_step(options, samples.get()),
           [&options, state](Output& output, nlohmann::ordered_json& result) {
             calibrate(options, state.value(), output, result);
           });
  return plan;
}

}  // namespace

Command calibrate_command() {
  return {"calibrate", "put quantizers into a network and choose their ranges",
          typed(calibrate_flags, plan_calibrate), true};
}

}  // namespace fq::cli
