#pragma once

/// Calibration of a model: every quantizer watches the data, then chooses its range.

#include <cstdint>
#include <string>

#include "fakequant/calib/calibrator.h"
#include "fakequant/layers/module.h"
#include "fakequant/train/data/loader.h"

namespace fq {

struct CalibrateOptions {
  std::string method = {};   ///< of activations: a calib_method; empty: each descriptor's own
  AmaxOptions amax = {};     ///< percentile, stride, ..; bits and sign come from each quantizer
  std::int64_t samples = 0;  ///< images to look at; 0 is all of one epoch
  bool keep_known = false;   ///< quantizers that have a range keep it
};

struct CalibrationReport {
  std::int64_t samples = 0;  ///< images seen
  int quantizers = 0;        ///< ranges chosen
};

/// Runs the model in evaluation mode over one epoch of `data` without quantizing, and sets amax of every
/// enabled quantizer that needs one and was not given it: activations by `method`, weights by the calib_method
/// of their descriptors, those of dead channels by their bias (floor_dead_channels). Where none needs one, the
/// data is not read. Under target `ort` a quantizer that saw no negative value becomes unsigned. The bits do
/// not depend on the number of threads. Throws ArgumentError when there is no data, a quantizer saw none, or
/// parts have different targets, NumericError naming quantizer and batch for a NaN or infinity; the ranges
/// from before then stay.
CalibrationReport calibrate(Module& model, DataLoader& data, const CalibrateOptions& options = {});

}  // namespace fq
