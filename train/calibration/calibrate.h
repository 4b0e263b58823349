#pragma once

/// Calibration of a model: every quantizer watches the data, then chooses its range.
///
///     quantize(model, QuantConfig::preset("int8"), {1, 3, 32, 32});
///     calibrate(model, loader, {.method = "entropy", .samples = 512});
///     postprocess_amax(model, {.pattern = "fc*.input_quantizer", .maximum = 6});
///
/// Some hundred images are enough for most networks; they should be like those that the network will see.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/calib/calibrator.h"
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
/// (train/calibration/calibration_state.h). Throws as `calibrate`.
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

}  // namespace fq
