#pragma once

/// Calibration of a model: every quantizer observes the data, then chooses its range.
///
///     quantize(model, QuantConfig::preset("int8"), {1, 3, 32, 32});
///     calibrate(model, loader, {.method = "entropy", .samples = 512});
///     postprocess_amax(model, {.pattern = "fc*.input_quantizer", .maximum = 6});
///
/// Some hundred samples are enough for most networks. They should resemble the data of deployment.
///
/// A file can hold the state of calibrators (docs/formats.md), to continue later or to merge the work of
/// several processes:
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

/// Returns the mask that is an input of a network of several inputs (ops::input_part). `input_shape` is the
/// shape of a batch. Throws ArgumentError for an unknown name, with the names of the inputs, and for an input
/// that is not one number per position.
[[nodiscard]] BatchMask mask_of_input(Module& model, const Shape& input_shape, const std::string& name);

/// Options of calibration: methods, data and ranks.
struct CalibrateOptions {
  std::string method = {};   ///< calib_method of activations; empty for the method of each descriptor
  AmaxOptions amax = {};     ///< percentile, stride, ..; bits and sign come from each quantizer
  std::int64_t samples = 0;  ///< samples to observe; 0 for one epoch
  bool keep_known = false;   ///< whether quantizers that have a range keep it
  std::vector<CalibrationRule> rules = {};  ///< methods and options for some quantizers, weights included
  bool keep_collected = false;              ///< whether calibrators keep their state and add the data to it
  BatchMask mask = {};                      ///< padding that calibrators do not see; none by default
  /// Ranks that share the batches; null for one process. All ranks make the call. The loader's `part` must be
  /// the rank, and its `parts` and `turn` the number of ranks. The bits are the same as with one rank. With
  /// methods that depend on the order of batches ("histogram"), each rank sees all batches.
  std::shared_ptr<Communicator> ranks = {};
};

/// Result of a calibration.
struct CalibrationReport {
  std::int64_t samples = 0;  ///< samples seen in a pass
  int quantizers = 0;        ///< number of ranges that were set
  int passes = 0;            ///< passes over the data
  std::int64_t masked = 0;   ///< tensors that had the positions of the mask
};

/// Observes one epoch of `data` and sets amax of every enabled quantizer that needs a range and has no amax
/// in its descriptor. The model runs in evaluation mode, without quantization. The number of passes over the
/// data is the largest that a calibrator requires.
///
/// Activations use `method`. Weights use the calib_method of their descriptors. `rules` replace both. A
/// channel of weights near zero, whose bias code would overflow int32, gets a larger range. If no activation
/// needs a range, the data is not read. A tensor that several layers read counts once. Under target `ort`, a
/// quantizer that saw no negative value becomes unsigned. The bits do not depend on the number of threads.
///
/// Throws ArgumentError if there is no data, samples differ in shape, a quantizer saw no data, no tensor has
/// the positions of the mask, an option is out of range, a rule matches nothing, or parts of the model have
/// different targets. Throws NumericError naming the quantizer and the batch for NaN or infinity. After an
/// error, ranges, methods and the state of calibrators are unchanged.
CalibrationReport calibrate(Module& model, DataLoader& data, const CalibrateOptions& options = {});

/// Fills the calibrators only: the first half of `calibrate`. Save or merge their state, then call
/// `choose_ranges`. Throws as `calibrate` does.
CalibrationReport collect_ranges(Module& model, DataLoader& data, const CalibrateOptions& options = {});
/// Sets ranges from the state of the calibrators, without data: the second half of `calibrate`. Throws as
/// `calibrate` does.
CalibrationReport choose_ranges(Module& model, const CalibrateOptions& options = {});

/// Replaces amax of the quantizers that have one and have a path that matches `pattern`. `change` maps each
/// range of a tensor, channel or block. Returns the number of quantizers that changed. Throws ArgumentError
/// if the pattern matches nothing, and, naming the quantizer, for a new range that is negative, NaN or
/// infinite. Then nothing has changed.
int postprocess_amax(Module& model, std::string_view pattern, const std::function<float(float)>& change);
/// Applies an adjustment of files and flags (calib/calibrator.h) in the same way. Throws ArgumentError for an
/// adjustment out of range.
int postprocess_amax(Module& model, const AmaxAdjustment& adjustment);

/// Identity of the samples of one calibration run: their number, and the CRC-32C of the network inputs, in
/// their order.
struct CalibrationShare {
  std::int64_t images = 0;
  std::uint32_t checksum = 0;

  auto operator<=>(const CalibrationShare&) const = default;
};

/// Returns the share that one epoch of the loader is. Reads the epoch. The batch size does not matter.
[[nodiscard]] CalibrationShare calibration_share(DataLoader& data);

/// Returns the state of the calibrators of activations. Ranges of weights come from the weights instead.
/// Attributes are `samples` (number of samples, for readers of the file), `shares` (the given ones) and
/// `parameters` (checksums of the model's parameters). Tensors are `quantizers/<name>/..`.
[[nodiscard]] StateDict calibration_state(Module& model, std::int64_t samples = 0,
                                          const std::vector<CalibrationShare>& shares = {});
/// Returns the shares of a state; empty if it was saved without shares. Throws FileError if `shares` is not a
/// list of shares.
[[nodiscard]] std::vector<CalibrationShare> calibration_shares(const StateDict& state,
                                                               const std::string& path);

/// Replaces the state of the calibrators by `state`, and returns its number of samples. `path` is for
/// messages.
///
/// Throws FileError, naming the parameter or quantizer, for a state of another model, of another method, or
/// with other axes or blocks, and for a state without a quantizer that has no range. Then nothing has
/// changed.
std::int64_t load_calibration_state(Module& model, const StateDict& state, const std::string& path);
/// Adds `state` to the state of the calibrators, and returns its number of samples. For `max` and one-pass
/// histograms, merging both halves of the data gives the bits of one run over all data. Throws as
/// `load_calibration_state` does, and for a state that cannot be merged. Then nothing has changed.
std::int64_t merge_calibration_state(Module& model, const StateDict& state, const std::string& path);

/// Throws what `merge_calibration_state` would throw, and changes nothing. Use it to merge several files
/// completely or not at all.
void check_merges(Module& model, const StateDict& state, const std::string& path);

/// Writes `calibration_state` to a file, completely or not at all.
void save_calibration(Module& model, const std::string& path, std::int64_t samples = 0,
                      const std::vector<CalibrationShare>& shares = {});
/// Loads a file of `save_calibration`. Throws FileError as `load_calibration_state` does, and for a file that
/// is damaged or of another kind.
std::int64_t load_calibration(Module& model, const std::string& path);
/// Merges a file of `save_calibration`. Throws as `load_calibration` and `merge_calibration_state` do.
std::int64_t merge_calibration(Module& model, const std::string& path);

}  // namespace fq
