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
#include "fakequant/core/detail/check.h"
#include "fakequant/core/log.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/calibration/calibration_report.h"
#include "fakequant/train/data/loader.h"

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

void print_report(const std::string& algorithm, const ptq::Report& report, Output& output) {
  const auto object = [&](const std::string& path) {
    return nlohmann::ordered_json{{"event", "weight_algorithm"}, {"algorithm", algorithm}, {"layer", path}};
  };
  for (const auto& [path, before, after] : report.layers) {
    auto told = object(path);
    told["before"] = before;
    told["after"] = after;
    output.record(fmt::format("{} {:<32} {:.6g} -> {:.6g}", algorithm, path, before, after), told);
  }
  for (const auto& [path, reason] : report.skipped) {
    auto told = object(path);
    told["skipped"] = reason;
    output.record(fmt::format("{} {:<32} left alone: it {}", algorithm, path, reason), told);
  }
}

/// A state that exists is continued, unless --merge has all that there is to begin with.
std::vector<std::string> states_of(const Flags& flags) {
  auto paths = flags.list("merge");
  if (const std::string state = flags.text("state"); paths.empty() && is_there(state)) paths.push_back(state);
  return paths;
}

LoaderOptions batches_of(const Flags& flags) {
  return {.batch_size = batch_of(flags), .shuffle = false, .device = device_of(flags)};
}

void print_errors(Network& network, const std::shared_ptr<const Dataset>& data, const Flags& flags,
                  Output& output) {
  DataLoader loader(data, batches_of(flags));
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

void check_weight_algorithm(const ptq::Algorithm& algorithm, const Flags& flags, bool images) {
  const std::string& name = algorithm.name();
  if (name.empty()) return;
  FQ_CHECK(!flags.knows("state") || flags.text("state").empty(), flags.command(),
           "--state keeps what the network collects as it is, and {} changes it: collect without an "
           "algorithm, then give the states to --merge",
           name);
  FQ_CHECK(!algorithm.runs_before() || !flags.knows("merge") || flags.list("merge").empty(), flags.command(),
           "{} changes the network that the states of --merge were collected with: calibrate in one go",
           name);
  FQ_CHECK(images, flags.command(), "{} looks at samples: give --data, and a --method that is not none",
           name);
}

CollectedSamples calibrate_network(Network& network, const Flags& flags, std::shared_ptr<const Dataset> data,
                                   Output& output, bool keep_known) {
  NetworkCalibrateOptions options{.samples = 0, .batches = batches_of(flags), .keep_known = keep_known};
  if (flags.given("percentile")) options.percentile = flags.number("percentile", 0, 100);
  options.mask = read_mask(network, flags);
  options.states = states_of(flags);
  options.keep_shares = !flags.text("state").empty();
  options.ranks = run_ranks();
  options.on_line = [&](const std::string& line) { output.line(line); };
  options.on_weights = [&](const std::string& algorithm, const ptq::Report& report) {
    print_report(algorithm, report, output);
  };
  network.module().to(device_of(flags));
  if (data != nullptr) {
    data = samples_to_calibrate(std::move(data), flags);
    output.line(fmt::format("calibrating on {} {}", data->size(), sample_noun(*data)));
  }
  auto collected = naming_flags([&] { return fq::calibrate(network, data, options); });
  if (data != nullptr && flags.on("errors")) print_errors(network, data, flags, output);
  if (stop_requested()) throw Interrupted("calibrate", ": nothing was written");
  return collected;
}

void save_collected(Network& network, const Flags& flags, const CollectedSamples& collected) {
  const std::string state = flags.text("state");
  if (!state.empty() && is_first_rank())
    save_calibration(network.module(), state, collected.count, collected.shares);
}

}  // namespace fq::cli
