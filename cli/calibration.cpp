#include "fakequant/cli/calibration.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/cli/system/signals.h"
#include "fakequant/cli/tables/sample_noun.h"
#include "fakequant/cli/weight_algorithm.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/state_file.h"
#include "fakequant/core/log.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/calibration/calibration_report.h"
#include "fakequant/train/calibration/calibration_state.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ranks/shares.h"

namespace fq::cli {
namespace {

std::int64_t batch_of(const Flags& flags) { return flags.integer("batch", 1, 1 << 20); }
std::int64_t samples_of(const Flags& flags) { return flags.integer("samples", 1, std::int64_t{1} << 40); }
std::int64_t skip_of(const Flags& flags) {
  return flags.knows("skip") ? flags.integer("skip", 0, std::int64_t{1} << 40) : 0;
}

bool is_there(const std::string& path) {
  std::error_code none;
  return !path.empty() && std::filesystem::exists(path, none);
}

/// The images that calibrators have seen.
class Collected {
 public:
  [[nodiscard]] std::int64_t samples() const { return samples_; }
  [[nodiscard]] const std::vector<CalibrationShare>& shares() const { return shares_; }
  [[nodiscard]] bool has(const CalibrationShare& share) const {
    return std::ranges::binary_search(shares_, share);
  }

  void add(std::int64_t samples, const std::vector<CalibrationShare>& shares) {
    samples_ += samples;
    shares_.insert(shares_.end(), shares.begin(), shares.end());
    std::ranges::sort(shares_);
  }

  /// A state that is in it whole is not counted twice, so that a merge may be repeated.
  void add_state(Module& model, const std::string& path, Output& output) {
    const StateDict state = load_state(path, "calibration");
    const auto shares = calibration_shares(state, path);
    const auto known = std::ranges::count_if(shares, [this](const auto& share) { return has(share); });
    FQ_CHECK(known == 0 || known == std::ssize(shares), "calibrate",
             "{} and the states before it have samples in common: merge states of others", path);
    if (known > 0) {
      check_merges(model, state, path);
      return output.line(fmt::format("{} is in it already, and is not counted again", path));
    }
    const auto take = states_++ == 0 ? load_calibration_state : merge_calibration_state;
    add(take(model, state, path), shares);
  }

 private:
  std::int64_t samples_ = 0;
  int states_ = 0;
  std::vector<CalibrationShare> shares_;  // sorted
};

/// A state that exists is gone on with, unless --merge gives all that there is to begin with.
Collected take_states(Network& network, const Flags& flags, Output& output) {
  const std::string state = flags.text("state");
  auto paths = flags.list("merge");
  if (paths.empty() && is_there(state)) paths.push_back(state);
  Collected out;
  for (const auto& path : paths) out.add_state(network.module(), path, output);
  if (out.samples() > 0) output.line(fmt::format("{} samples collected before", out.samples()));
  return out;
}

/// A run that is repeated after it was killed behind writing --state finds its images there.
void take_images(Network& network, DataLoader& loader, const CalibrateOptions& options, bool keeps_state,
                 Collected& collected, Output& output) {
  const bool shared = keeps_state || !collected.shares().empty();
  const CalibrationShare share = shared ? calibration_share(loader) : CalibrationShare{};
  if (shared && collected.has(share))
    return output.line(
        fmt::format("the {} samples are in it already, and are not counted again", share.images));
  DataLoader own = fq::detail::loader_beside(loader, share_of_rank(loader.options(), *run_ranks()));
  const CalibrationReport report = collect_ranges(network.module(), own, options);
  FQ_CHECK(!options.mask || report.samples == 0 || report.masked > 0, "calibrate",
           "--mask: no tensor of the network has its positions: give the mask of the sequences");
  collected.add(report.samples, shared ? std::vector{share} : std::vector<CalibrationShare>{});
}

/// Null where there is no data.
std::unique_ptr<DataLoader> loader_of(std::shared_ptr<const Dataset> data, const Flags& flags,
                                      Output& output) {
  if (data == nullptr) return nullptr;
  data = samples_to_calibrate(std::move(data), flags);
  output.line(fmt::format("calibrating on {} {}", data->size(), sample_noun(*data)));
  return std::make_unique<DataLoader>(
      data, LoaderOptions{.batch_size = batch_of(flags), .shuffle = false, .device = device_of(flags)});
}

void tell_errors(Network& network, DataLoader& loader, Output& output) {
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

void add_state_flags(FlagSet& set) {
  set.need({"skip", "samples", "errors"}, "data");
  set.value("skip", "SAMPLES",
            "leave out so many of those that --samples would take first: shares of the data", "0")
      .output("state", "FILE",
              "what was collected: gone on with if it is there, and written; -o may then be left out", "",
              [](const Flags& flags) {
                return std::vector<WrittenFile>{{flags.text("state"), kind::calibration, false, "merge"}};
              })
      .list("merge", "FILE..", "states to put together in place of data; with --data it is added to them")
      .toggle("errors", "print the error of each quantizer on the samples, as mean square and SQNR");
}

std::unique_ptr<FileLock> lock_state(const Flags& flags) {
  const std::string state = flags.text("state");
  if (state.empty()) return nullptr;
  bool told = false;
  const auto waiting = [&](const std::string& owner) {
    if (stop_requested()) throw Interrupted("calibrate", ": nothing was written");
    if (!std::exchange(told, true))
      log(LogLevel::warning, fmt::format("[calibrate] waiting for {}, which has {}", owner, state));
  };
  auto lock = is_first_rank() ? std::make_unique<FileLock>(state, waiting) : nullptr;
  (void)run_ranks()->gather({});  // the others read it when it is held
  return lock;
}

bool takes_states(const Flags& flags) { return !flags.list("merge").empty() || !flags.text("state").empty(); }

std::shared_ptr<const Dataset> samples_to_calibrate(std::shared_ptr<const Dataset> data, const Flags& flags) {
  return naming_flags([&] { return some_samples(std::move(data), samples_of(flags), 0, skip_of(flags)); });
}

void add_mask_flag(FlagSet& set) {
  set.value("mask", "NAME",
            "input of the network that is 0 for padding, [T] for each sample: padding does not enter ranges "
            "(default: ranges are of all positions)");
}

BatchMask read_mask(const Network& network, const Flags& flags) {
  if (!flags.knows("mask") || !flags.given("mask")) return {};
  return naming_flags(
      [&] { return mask_of_input(network.module(), network.input_shape(), flags.text("mask")); });
}

void check_calibration_flags(const Flags& flags) {
  (void)samples_of(flags);
  (void)batch_of(flags);
  (void)skip_of(flags);
  (void)flags.number("percentile", 0, 100);
  const std::string state = flags.text("state");
  const auto merged = flags.list("merge");
  FQ_CHECK(
      merged.empty() || state.empty() || std::ranges::find(merged, state) != merged.end() || !is_there(state),
      flags.command(), "--state {} is there already: give it to --merge too, or another file", state);
}

CollectedSamples calibrate_network(Network& network, const Flags& flags, const Quantization& quantization,
                                   std::shared_ptr<const Dataset> data, Output& output, bool keep_known) {
  const QuantConfig& config = quantization.config;
  CalibrateOptions options{.amax = config.amax, .keep_known = keep_known, .rules = config.calibration};
  options.ranks = run_ranks();
  options.mask = read_mask(network, flags);
  if (flags.given("percentile")) options.amax.percentile = flags.number("percentile", 0, 100);
  network.module().to(device_of(flags));
  const auto loader = loader_of(std::move(data), flags, output);
  WeightAlgorithm algorithm(quantization.algorithm);
  if (loader) algorithm.before(network, *loader, output);
  const std::string state = flags.text("state");
  Collected collected = take_states(network, flags, output);
  options.keep_collected = collected.samples() > 0;
  if (loader)
    naming_flags([&] { take_images(network, *loader, options, !state.empty(), collected, output); });
  (void)choose_ranges(network.module(), options);
  for (const auto& adjustment : config.postprocess) (void)postprocess_amax(network.module(), adjustment);
  if (loader) algorithm.after(network, *loader, output);
  if (loader && flags.on("errors")) tell_errors(network, *loader, output);
  if (stop_requested()) throw Interrupted("calibrate", ": nothing was written");
  return {collected.samples(), collected.shares()};
}

void save_collected(Network& network, const Flags& flags, const CollectedSamples& collected) {
  const std::string state = flags.text("state");
  if (!state.empty() && is_first_rank())
    save_calibration(network.module(), state, collected.count, collected.shares);
}

}  // namespace fq::cli
