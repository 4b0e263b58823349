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

/// A quantizer with the weight it quantizes, if it is a weight's.
struct CalibrationTarget {
  NamedQuantizer entry;
  Variable weight;
  [[nodiscard]] bool is_weight() const noexcept { return weight.defined(); }
};

/// The enabled quantizers that need a range and were not given it; with `keep_known` without those that have
/// one.
[[nodiscard]] std::vector<CalibrationTarget> calibration_targets(Module& model, bool keep_known);

/// The weight of each quantizer that is a weight's.
[[nodiscard]] std::map<const TensorQuantizer*, Variable> weights_of(Module& model);

/// Collects a tensor that is all there is to see, as often as the calibrator is to see it.
void collect_whole(TensorQuantizer& quantizer, const Tensor& x);

/// Throws ArgumentError for options out of range and rules that match nothing.
void check_options(Module& model, const CalibrateOptions& options);
/// By the last rule that matches, else by `method`, which is not for weights.
void set_methods(const std::vector<CalibrationTarget>& targets, const CalibrateOptions& options);
[[nodiscard]] AmaxOptions amax_options(const NamedQuantizer& entry, const CalibrateOptions& options);

/// Unless `keep` is called, gives quantizers back their descriptors and what their calibrators had collected.
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

/// The first method of those quantizers' calibrators whose result depends on which batches are seen together,
/// so that each rank has to see all of them; empty when there is none.
[[nodiscard]] std::string_view method_of_one_process(const std::vector<TensorQuantizer*>& quantizers);

/// Called by all ranks behind a pass over their shares: what one of them collected, all have then.
void merge_over_ranks(Module& model, Communicator& ranks);

}  // namespace fq::detail
