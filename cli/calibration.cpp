#include "fakequant/cli/calibration.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/system/process.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/log.h"
#include "fakequant/export/safetensors/modelopt.h"
#include "fakequant/layers/quantizer/detail/dead_channels.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/calibration/calibration_report.h"
#include "fakequant/train/data/loader.h"

namespace fq::cli {
namespace {

constexpr std::int64_t kManySamples = std::int64_t{1} << 40;

bool is_there(const std::string& path) {
  std::error_code none;
  return !path.empty() && std::filesystem::exists(path, none);
}

void print_report(const std::string& algorithm, const ptq::Report& report, Output& output) {
  const auto object = [&](const std::string& path) {
    return nlohmann::ordered_json{{"event", "weight_algorithm"}, {"algorithm", algorithm}, {"layer", path}};
  };
  for (const auto& [path, before, after] : report.layers) {
    auto entry = object(path);
    entry["before"] = before;
    entry["after"] = after;
    output.record(fmt::format("{} {:<32} {:.6g} -> {:.6g}", algorithm, path, before, after), entry);
  }
  for (const auto& [path, reason] : report.skipped) {
    auto entry = object(path);
    entry["skipped"] = reason;
    output.record(fmt::format("{} {:<32} skipped: it {}", algorithm, path, reason), entry);
  }
}

/// Returns the states to start from: --merge if it is given, else an existing --state.
/// A state in --merge and --state counts once, because `check_calibration_options` requires it in --merge.
std::vector<std::string> initial_states(const CalibrationOptions& options) {
  auto paths = options.merge;
  if (paths.empty() && is_there(options.state)) paths.push_back(options.state);
  return paths;
}

void print_errors(Network& network, const std::shared_ptr<const Dataset>& data, const LoaderOptions& batches,
                  Output& output) {
  DataLoader loader(data, batches);
  for (const auto& error : compute_quantization_mse(network.module(), loader)) {
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

void add_samples_flag(FlagSet& set, CalibrationOptions& options) {
  set.value(options.samples, "samples", "SAMPLES", {1, kManySamples},
            "training samples to calibrate on (default: 512)");
}

void add_percentile_flag(FlagSet& set, CalibrationOptions& options) {
  set.value(options.percentile, "percentile", "PERCENT", {0, 100},
            "share of the values inside of the range, for the method percentile (default: 99.99)");
}

void add_mask_flag(FlagSet& set, CalibrationOptions& options) {
  set.value(options.mask, "mask", "NAME",
            "input of the network that is 0 for padding, [T] for each sample: padding does not enter ranges "
            "(default: ranges are of all positions)");
}

void add_state_flags(FlagSet& set, CalibrationOptions& options) {
  set.need({"skip", "samples", "errors"}, "data");
  set.value(options.skip, "skip", "SAMPLES", {0, kManySamples},
            "number of first samples of --samples to skip, for parts of the data")
      .output(options.state, "state", "FILE",
              "calibration state: loaded first if it exists, then updated; -o is optional with it",
              [&options] {
                return std::vector<WrittenFile>{{options.state, kind::calibration, false, "merge"}};
              })
      .list(options.merge, "merge", "FILE..", "states to merge instead of reading data; --data adds samples")
      .toggle(options.errors, "errors",
              "print the error of each quantizer on the samples, as mean square and SQNR");
}

std::unique_ptr<FileLock> lock_state(const CalibrationOptions& options) {
  const std::string& state = options.state;
  if (state.empty()) return nullptr;
  bool warned = false;
  const auto waiting = [&](const std::string& owner) {
    if (stop_requested()) throw Interrupted("calibrate", ": nothing was written");
    if (!std::exchange(warned, true))
      log(LogLevel::warning, fmt::format("[calibrate] waiting for {}, which has {}", owner, state));
  };
  // Only the first rank writes the state, so it alone locks the file.
  auto lock = is_first_rank() ? std::make_unique<FileLock>(state, waiting) : nullptr;
  (void)run_ranks()->gather({});  // other ranks read it while the first holds the lock
  return lock;
}

std::shared_ptr<const Dataset> samples_to_calibrate(std::shared_ptr<const Dataset> data,
                                                    const CalibrationOptions& options) {
  return naming_flags([&] { return some_samples(std::move(data), options.sample_count(), 0, options.skip); });
}

BatchMask read_mask(const Network& network, const CalibrationOptions& options) {
  if (!options.mask) return {};
  return naming_flags([&] { return mask_of_input(network.module(), network.input_shape(), *options.mask); });
}

void check_calibration_options(const CalibrationOptions& options, const std::string& command) {
  // Without this check, --merge would silently replace the samples that the state already has.
  const std::string& state = options.state;
  FQ_CHECK(options.merge.empty() || state.empty() ||
               std::ranges::find(options.merge, state) != options.merge.end() || !is_there(state),
           command, "--state {}: the file exists already. Add it to --merge, or use another file", state);
}

void check_weight_algorithm(const ptq::Algorithm& algorithm, const CalibrationOptions& options, bool images,
                            const std::string& command) {
  const std::string& name = algorithm.name();
  if (name.empty()) return;
  // States store checksums of the parameters, and an algorithm changes the parameters.
  FQ_CHECK(
      options.state.empty(), command,
      "--state collects statistics of the unchanged network, and {} changes the network. Collect without "
      "an algorithm, then use --merge",
      name);
  // Algorithms after calibration use the merged ranges.
  FQ_CHECK(!algorithm.precedes_calibration() || options.merge.empty(), command,
           "{} changes the network that the states of --merge were collected with: calibrate in one call",
           name);
  FQ_CHECK(images, command, "{} requires samples. Use --data, and a --method other than none", name);
}

CollectedSamples calibrate_network(Network& network, const CalibrationOptions& options,
                                   const LoaderOptions& batches, std::shared_ptr<const Dataset> data,
                                   Output& output, bool keep_known) {
  // `data` has the chosen samples already, so the library must not draw from them again.
  NetworkCalibrateOptions calibrating{.samples = 0, .batches = batches, .keep_known = keep_known};
  calibrating.percentile = options.percentile;
  calibrating.mask = read_mask(network, options);
  calibrating.states = initial_states(options);
  calibrating.keep_shares = !options.state.empty();
  calibrating.ranks = run_ranks();
  calibrating.progress_callback = [&](const std::string& line) { output.line(line); };
  calibrating.weights_callback = [&](const std::string& algorithm, const ptq::Report& report) {
    print_report(algorithm, report, output);
  };
  // Before the data is read: batches are made on this device.
  network.module().to(batches.device);
  if (data != nullptr) {
    data = samples_to_calibrate(std::move(data), options);
    output.line(fmt::format("calibrating on {} {}", data->size(), sample_noun(*data)));
  }
  auto collected = naming_flags([&] { return fq::calibrate(network, data, calibrating); });
  if (data != nullptr && options.errors) print_errors(network, data, batches, output);
  // A signal during the calibration only sets a flag. The user then expects no output.
  if (stop_requested()) throw Interrupted("calibrate", ": nothing was written");
  return collected;
}

void save_collected(Network& network, const CalibrationOptions& options, const CollectedSamples& collected) {
  if (!options.state.empty() && is_first_rank())
    save_calibration(network.module(), options.state, collected.count, collected.shares);
}

namespace {

/// Returns the first names of a long list, and the number of others.
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  const auto shown = std::min(names.size(), most);
  auto text = fmt::format("{}", fmt::join(names.begin(), names.begin() + std::ptrdiff_t(shown), ", "));
  return names.size() > shown ? fmt::format("{} and {} more", text, names.size() - shown) : text;
}

}  // namespace

void import_ranges(Network& network, const std::string& path, bool data_follows, const std::string& command,
                   Output& output) {
  const ImportedRanges found = fq::import_ranges(network.module(), path);
  FQ_CHECK(found.missing.empty() || data_follows, command,
           "{} has no ranges of {}: use --data to calibrate them, or other rules", path,
           listed(found.missing));
  std::string text = fmt::format("{} ranges from {}", found.set.size(), path);
  if (!found.missing.empty()) text += fmt::format(", none of {}", listed(found.missing));
  if (!found.unused.empty()) text += fmt::format("; not used: {}", listed(found.unused));
  output.record(
      text, {{"event", "import"}, {"set", found.set}, {"missing", found.missing}, {"unused", found.unused}});
  // With missing ranges, calibration follows and handles dead channels itself.
  if (found.missing.empty()) floor_dead_channels(network.module());
}

}  // namespace fq::cli
