#pragma once

/// Calibration of a model: every quantizer observes the data, then chooses its range.
///
///     quantize(model, QuantConfig::preset("int8"), {1, 3, 32, 32});
///     calibrate(model, loader, {.method = "entropy", .samples = 512});
///     postprocess_amax(model, {.pattern = "fc*.input_quantizer", .maximum = 6});
///
/// Some hundred samples are enough for most networks. They should resemble the data of deployment.
///
/// A file can hold what calibrators have collected (docs/formats.md), to continue later or to merge
/// processes:
///
///     collect_ranges(model, first_half);
///     save_calibration(model, "first.h5");
///     // Another process collects the other half into "second.h5". Then, on the same model:
///     load_calibration(model, "first.h5");
///     merge_calibration(model, "second.h5");
///     choose_ranges(model);

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/calib/calibrator.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq {

/// Returns the mask of a batch, [N, T]: 0 for padding, another number for data.
///
/// The mask removes padding from tensors [N, T, ..], [N * T, ..] and, where one other axis alone has T
/// elements, [N, heads, T, d]. Observers see all of other tensors, for example of [N, C].
using BatchMask = std::function<Tensor(const Batch&)>;

/// Returns the mask that is an input of a network of several inputs (ops::input_part). `input_shape` is that
/// of a batch. Throws ArgumentError with the names of the inputs for an unknown name, and for an input that
/// is not one number for each position.
[[nodiscard]] BatchMask mask_of_input(Module& model, const Shape& input_shape, const std::string& name);

/// How ranges are chosen, and by which data.
struct CalibrateOptions {
  std::string method = {};   ///< of activations: a calib_method; empty: each descriptor's own
  AmaxOptions amax = {};     ///< percentile, stride, ..; bits and sign come from each quantizer
  std::int64_t samples = 0;  ///< images to look at; 0 is all of one epoch
  bool keep_known = false;   ///< quantizers that have a range keep it
  std::vector<CalibrationRule> rules = {};  ///< other methods and options, weights included
  bool keep_collected = false;              ///< the data adds to what calibrators have collected
  BatchMask mask = {};                      ///< padding that calibrators do not see; none by default
  /// Who shares out the batches with this process; null for nobody. All of them make the call, each with a
  /// loader whose `part` is its rank, `parts` and `turn` the number of ranks: the bits are those of one. By
  /// methods that depend on the order of batches, such as "histogram", each sees all of them.
  std::shared_ptr<Communicator> ranks = {};
};

/// What was done.
struct CalibrationReport {
  std::int64_t samples = 0;  ///< images seen in a pass
  int quantizers = 0;        ///< ranges chosen
  int passes = 0;            ///< over the data
  std::int64_t masked = 0;   ///< tensors that had the positions of the mask
};

/// Runs the model in evaluation mode over one epoch of `data` without quantizing, once, or as often as the
/// calibrator with most passes asks for, and sets amax of every enabled quantizer that needs one and was not
/// given it.
///
/// Activations go by `method`. Weights go by the calib_method of their descriptors; `rules` say otherwise.
/// Dead channels, whose weights are so small that the code of their bias would leave int32, get a larger
/// range. Where no activation needs a range, the data is not read. A tensor counts once, however many layers
/// read it. Under target `ort` a quantizer that saw no negative value becomes unsigned. The bits do not
/// depend on the number of threads.
///
/// Throws ArgumentError when there is no data, samples differ in shape, a quantizer saw none, no tensor has
/// the positions of the mask, an option is out of range, a rule matches nothing, or parts have different
/// targets; NumericError naming quantizer and batch for a NaN or infinity. Ranges, methods and what was
/// collected before then stay.
CalibrationReport calibrate(Module& model, DataLoader& data, const CalibrateOptions& options = {});

/// The first half of `calibrate`: it only fills calibrators, so that their state can be kept and merged
/// (train/calibration/calibrate.h). Throws as `calibrate`.
CalibrationReport collect_ranges(Module& model, DataLoader& data, const CalibrateOptions& options = {});
/// The second half, which needs no data: it chooses ranges from what was collected. Throws as `calibrate`.
CalibrationReport choose_ranges(Module& model, const CalibrateOptions& options = {});

/// Replaces amax of the quantizers that have one and one of whose paths the pattern covers: each value is one
/// range of a tensor, channel or block. Returns how many quantizers were changed. Throws ArgumentError when
/// the pattern covers none, for an adjustment out of range, and naming the quantizer for a new range that is
/// negative, NaN or infinite; then nothing changed.
int postprocess_amax(Module& model, std::string_view pattern, const std::function<float(float)>& change);
/// The same by an adjustment (calib/calibrator.h), as files and flags say it.
int postprocess_amax(Module& model, const AmaxAdjustment& adjustment);

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
