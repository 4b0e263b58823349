#pragma once

/// What the calibrators of a model have collected, in a file (docs/formats.md): to go on another day, or to
/// put together what several processes collected on shares of the data.
///
///     collect_ranges(model, first_half);
///     save_calibration(model, "first.h5");
///     // another process collects the other half into "second.h5"; then, on the same model:
///     load_calibration(model, "first.h5");
///     merge_calibration(model, "second.h5");
///     choose_ranges(model);

#include <cstdint>
#include <string>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"

namespace fq {

/// Images that were collected on in one run, by which they are known again: their number, and the CRC-32C of
/// what the network saw of them, in their order.
struct CalibrationShare {
  std::int64_t images = 0;
  std::uint32_t checksum = 0;

  auto operator<=>(const CalibrationShare&) const = default;
};

/// The share that one epoch of the loader is, which is read for it; batches may be of any size.
[[nodiscard]] CalibrationShare calibration_share(DataLoader& data);

/// What the quantizers of activations have collected; ranges of weights are read from the weights. Attributes
/// are `samples` (images seen, for whoever reads the file), `shares` (those that were told) and `parameters`
/// (checksums of the model's); tensors are `quantizers/<name>/..`.
[[nodiscard]] StateDict calibration_state(Module& model, std::int64_t samples = 0,
                                          const std::vector<CalibrationShare>& shares = {});
/// The shares of a state; none for a state that was told none. Throws FileError for what is no list of
/// shares.
[[nodiscard]] std::vector<CalibrationShare> calibration_shares(const StateDict& state,
                                                               const std::string& path);

/// Replaces what is collected by a state, and returns its samples. `path` is for messages.
///
/// Throws FileError naming the parameter or quantizer: for a state of another model, one collected by another
/// method or with other axes or blocks, one that lacks a quantizer without a range; then nothing changed.
std::int64_t load_calibration_state(Module& model, const StateDict& state, const std::string& path);
/// Adds a state to what is collected, and returns its samples. Both halves of the data merged are one run
/// over it, bit by bit, for `max` and histograms that are filled in one pass. Throws likewise, and for a
/// state that cannot be added to; then nothing changed.
std::int64_t merge_calibration_state(Module& model, const StateDict& state, const std::string& path);

/// Throws what merging would throw; nothing changes. It is for whoever merges several files and wants all or
/// none.
void check_merges(Module& model, const StateDict& state, const std::string& path);

/// The same with a file, which is written as a whole or not at all.
void save_calibration(Module& model, const std::string& path, std::int64_t samples = 0,
                      const std::vector<CalibrationShare>& shares = {});
/// Reads such a file. Throws FileError as `load_calibration_state`, and for a file that is damaged or none of
/// these.
std::int64_t load_calibration(Module& model, const std::string& path);
/// Adds such a file. Throws as `load_calibration`.
std::int64_t merge_calibration(Module& model, const std::string& path);

}  // namespace fq
