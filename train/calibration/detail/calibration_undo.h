#pragma once

/// What was collected before a call that fails.

#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::detail {

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

}  // namespace fq::detail
