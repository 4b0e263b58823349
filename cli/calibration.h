#pragma once

/// Calibration on images, on states of earlier calibrations, or on both.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/core/io/detail/locks/file_lock.h"
#include "fakequant/network/network.h"
#include "fakequant/network/qat.h"
#include "fakequant/train/data/dataset.h"

namespace fq::cli {

struct CalibrationOptions {
  std::optional<double> percentile = {};  ///< share of the values inside of the range, in percent
  std::optional<std::int64_t> samples = {};
  std::optional<std::string> mask = {};  ///< input of the network that is 0 for padding
  std::int64_t skip = 0;                 ///< samples before the first one
  std::string state = {};                ///< file of collected statistics, read if it exists, then written
  std::vector<std::string> merge = {};   ///< states
  bool errors = false;                   ///< prints the error of each quantizer

  [[nodiscard]] std::int64_t sample_count() const { return samples.value_or(512); }
  [[nodiscard]] bool takes_states() const { return !merge.empty() || !state.empty(); }
};

/// Adds --samples.
void add_samples_flag(FlagSet& set, CalibrationOptions& options);
/// Adds --percentile.
void add_percentile_flag(FlagSet& set, CalibrationOptions& options);
/// Adds --mask.
void add_mask_flag(FlagSet& set, CalibrationOptions& options);
/// Adds --skip, --state, --merge and --errors, which only `calibrate` has.
void add_state_flags(FlagSet& set, CalibrationOptions& options);

/// Locks --state for this run, from reading to writing. Returns null without --state. Waits with a warning
/// while another run holds the lock. Throws Interrupted after Ctrl-C.
[[nodiscard]] std::unique_ptr<FileLock> lock_state(const CalibrationOptions& options);
/// Returns the samples of --samples and --skip. Throws ArgumentError if there are none.
[[nodiscard]] std::shared_ptr<const Dataset> samples_to_calibrate(std::shared_ptr<const Dataset> data,
                                                                  const CalibrationOptions& options);
/// Returns the mask of --mask, or none without it. Throws ArgumentError for an unknown input.
[[nodiscard]] BatchMask read_mask(const Network& network, const CalibrationOptions& options);
/// Throws ArgumentError for incompatible options.
void check_calibration_options(const CalibrationOptions& options, const std::string& command);

/// Throws ArgumentError for an algorithm with --state, for an algorithm that changes the network before
/// calibration with --merge, and for an algorithm without `images`.
void check_weight_algorithm(const ptq::Algorithm& algorithm, const CalibrationOptions& options, bool images,
                            const std::string& command);

/// Calibrates (network/qat.h) with the states of --merge or --state and the samples of `data`, which may be
/// null. Throws Interrupted after a signal.
CollectedSamples calibrate_network(Network& network, const CalibrationOptions& options,
                                   const LoaderOptions& batches, std::shared_ptr<const Dataset> data,
                                   Output& output, bool keep_known);

/// Writes --state, if it is given. Call it after the checkpoint is written: a command that is killed between
/// the two files can then be repeated, because --merge requires that --state does not exist.
void save_collected(Network& network, const CalibrationOptions& options, const CollectedSamples& collected);

/// Copies the ranges of the file `path` to a quantized network. Throws ArgumentError listing quantizers
/// without a range, unless data will calibrate them.
void import_ranges(Network& network, const std::string& path, bool data_follows, const std::string& command,
                   Output& output);

}  // namespace fq::cli
