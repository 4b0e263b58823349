#pragma once

/// The quantizers of a calibration: selection, methods, merging over ranks, and undo after an error.

#include <map>
#include <string_view>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::detail {

/// A quantizer and, if it is a weight quantizer, its weight.
struct CalibrationTarget {
  NamedQuantizer entry;
  Variable weight;
  [[nodiscard]] bool is_weight() const noexcept { return weight.defined(); }
};

/// Returns the enabled quantizers that need a range and have no amax in their descriptor. With `keep_known`,
/// leaves out quantizers that have a range.
[[nodiscard]] std::vector<CalibrationTarget> calibration_targets(Module& model, bool keep_known);

/// Returns the weight of each weight quantizer.
[[nodiscard]] std::map<const TensorQuantizer*, Variable> quantizer_weights(Module& model);

/// Collects a tensor that is the complete data, with the number of passes that the calibrator requires.
void collect_whole(TensorQuantizer& quantizer, const Tensor& x);

/// Throws ArgumentError for options out of range and rules that match nothing.
void check_options(Module& model, const CalibrateOptions& options);
/// Sets the calib_method of each target: by the last rule that matches, else by `method`, which does not
/// apply to weights.
void set_methods(const std::vector<CalibrationTarget>& targets, const CalibrateOptions& options);
/// Returns the options of the last rule that matches, else `options.amax`.
[[nodiscard]] AmaxOptions amax_options(const NamedQuantizer& entry, const CalibrateOptions& options);

/// Restores the descriptors and calibrator states of quantizers at the end of its block, unless `keep` is
/// called.
class CalibrationUndo {
 public:
  explicit CalibrationUndo(const std::vector<TensorQuantizer*>& quantizers);
  ~CalibrationUndo();
  CalibrationUndo(const CalibrationUndo&) = delete;  // tied to its block
  CalibrationUndo& operator=(const CalibrationUndo&) = delete;
  void keep() noexcept { before_.clear(); }

 private:
  struct Before {
    TensorQuantizer* quantizer;
    QuantDescriptor descriptor;
    StateDict collected;
  };
  std::vector<Before> before_;
};

/// Returns the first calib_method among the quantizers whose result depends on the batches seen together, so
/// that each rank must see all batches. Returns an empty text if there is none.
[[nodiscard]] std::string_view method_of_one_process(const std::vector<TensorQuantizer*>& quantizers);

/// Merges the calibrator states of all ranks, so that all have the same. All ranks call it after a pass over
/// their shares.
void merge_over_ranks(Module& model, Communicator& ranks);

}  // namespace fq::detail
