#pragma once

/// Calibration as the flags say: on images, on what was collected before, or both.

#include <memory>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/core/io/detail/locks/file_lock.h"
#include "fakequant/network/calibration.h"
#include "fakequant/train/data/dataset.h"

namespace fq::cli {

/// --skip, --state, --merge and --errors, which only `calibrate` has.
void add_state_flags(FlagSet& set);
/// --state for this run alone, from reading to writing; null without it. Waits for another run that has it,
/// which is told as a warning. Throws Interrupted after Ctrl-C.
[[nodiscard]] std::unique_ptr<FileLock> lock_state(const Flags& flags);
/// Whether there is something collected before to calibrate on.
[[nodiscard]] bool takes_states(const Flags& flags);
/// Those that --samples and --skip take. Throws ArgumentError where they leave none.
[[nodiscard]] std::shared_ptr<const Dataset> samples_to_calibrate(std::shared_ptr<const Dataset> data,
                                                                  const Flags& flags);
/// --mask, for commands that calibrate.
void add_mask_flag(FlagSet& set);
/// Returns the mask of --mask, or none without the flag. Throws ArgumentError for names that no input has.
[[nodiscard]] BatchMask read_mask(const Network& network, const Flags& flags);
/// Throws ArgumentError for values out of range and flags that go against each other.
void check_calibration_flags(const Flags& flags);

/// Throws ArgumentError for an algorithm with --state, with --merge if it changes the network before it is
/// calibrated, and where there are no `images` to look at.
void check_weight_algorithm(const ptq::Algorithm& algorithm, const Flags& flags, bool images);

/// Calibrates (network/calibration.h) with the states of --merge or --state and --samples of `data`, which
/// may be null. Throws Interrupted after a signal.
CollectedSamples calibrate_network(Network& network, const Flags& flags, std::shared_ptr<const Dataset> data,
                                   Output& output, bool keep_known);

/// Writes --state, if it is given. After the checkpoint: a command that is killed between the two files can
/// be repeated, as --merge requires that --state is not there yet.
void save_collected(Network& network, const Flags& flags, const CollectedSamples& collected);

}  // namespace fq::cli
