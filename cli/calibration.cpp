#include "fakequant/cli/calibration.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/flag_groups.h"
#include "fakequant/cli/weight_algorithm.h"
#include "fakequant/core/check.h"
#include "fakequant/train/calibrate.h"
#include "fakequant/train/calibration_state.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/postprocess_amax.h"
#include "fakequant/train/quantization_error.h"

namespace fq::cli {
namespace {

std::int64_t batch_of(const Flags& flags) { return flags.integer("batch", 1, 1 << 20); }
std::int64_t samples_of(const Flags& flags) { return flags.integer("samples", 1, std::int64_t{1} << 40); }
std::int64_t skip_of(const Flags& flags) {
  return flags.knows("skip") ? flags.integer("skip", 0, std::int64_t{1} << 40) : 0;
}

/// A state that exists is gone on with, unless --merge gives all that there is to begin with.
std::int64_t take_states(Network& network, const Flags& flags, Output& output) {
  const std::string state = flags.text("state");
  const auto merged = flags.list("merge");
  std::int64_t samples = 0;
  for (const auto& path : merged)
    samples += &path == &merged.front() ? load_calibration(*network.module, path)
                                        : merge_calibration(*network.module, path);
  if (merged.empty() && !state.empty() && std::filesystem::exists(state))
    samples = load_calibration(*network.module, state);
  if (samples > 0) output.line(fmt::format("{} images collected before", samples));
  return samples;
}

/// Null where there is no data.
std::unique_ptr<DataLoader> loader_of(std::shared_ptr<const Dataset> data, const Flags& flags,
                                      Output& output) {
  if (data == nullptr) return nullptr;
  data = some_samples(std::move(data), samples_of(flags), 0, skip_of(flags));
  output.line(fmt::format("calibrating on {} images", data->size()));
  return std::make_unique<DataLoader>(
      data, LoaderOptions{.batch_size = batch_of(flags), .shuffle = false, .device = device_of(flags)});
}

void tell_errors(Network& network, DataLoader& loader, Output& output) {
  for (const auto& error : compute_quantization_mse(*network.module, loader)) {
    const double sqnr = error.sqnr_db();
    output.record(fmt::format("{:<40} mse {:.6g}, SQNR {:.2f} dB", error.name, error.mse, sqnr),
                  {{"event", "quantization_error"},
                   {"quantizer", error.name},
                   {"elements", error.elements},
                   {"mse", error.mse},
                   {"sqnr_db", std::isfinite(sqnr) ? nlohmann::ordered_json(sqnr) : nullptr}});
  }
}

}  // namespace

void add_state_flags(FlagSet& set) {
  set.value("skip", "IMAGES",
            "leave out so many of the images that --samples would take first: shares of the data", "0")
      .value("state", "FILE",
             "what was collected: gone on with if it is there, and written; -o may then be left out")
      .list("merge", "FILE..", "states to put together in place of data; with --data it is added to them")
      .toggle("errors", "print the error of each quantizer on the images, as mean square and SQNR");
}

bool takes_states(const Flags& flags) { return !flags.list("merge").empty() || !flags.text("state").empty(); }

void check_calibration_flags(const Flags& flags) {
  (void)samples_of(flags);
  (void)batch_of(flags);
  (void)skip_of(flags);
  (void)flags.number("percentile", 0, 100);
  const std::string state = flags.text("state");
  const auto merged = flags.list("merge");
  FQ_CHECK(merged.empty() || state.empty() || std::ranges::find(merged, state) != merged.end() ||
               !std::filesystem::exists(state),
           flags.command(), "--state {} is there already: give it to --merge too, or another file", state);
}

void calibrate_network(Network& network, const Flags& flags, const QuantConfig& config,
                       std::shared_ptr<const Dataset> data, Output& output, bool keep_known) {
  CalibrateOptions options{.amax = config.amax, .keep_known = keep_known, .rules = config.calibration};
  if (flags.given("percentile")) options.amax.percentile = flags.number("percentile", 0, 100);
  network.module->to(device_of(flags));
  const auto loader = loader_of(std::move(data), flags, output);
  WeightAlgorithm algorithm(config, flags, loader != nullptr);
  if (loader) algorithm.before(network, *loader, output);
  std::int64_t samples = take_states(network, flags, output);
  options.keep_collected = samples > 0;
  if (loader) samples += collect_ranges(*network.module, *loader, options).samples;
  (void)choose_ranges(*network.module, options);
  for (const auto& adjustment : config.postprocess) (void)postprocess_amax(*network.module, adjustment);
  if (loader) algorithm.after(network, *loader, output);
  if (loader && flags.on("errors")) tell_errors(network, *loader, output);
  if (stop_requested()) throw Interrupted("[calibrate] stopped by Ctrl-C: nothing was written");
  if (const std::string state = flags.text("state"); !state.empty())
    save_calibration(*network.module, state, samples);
}

}  // namespace fq::cli
