#pragma once

/// GPTQ: weights rounded one column after another, each error made good by the columns that follow.

#include <cstdint>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ptq/report.h"

namespace fq::ptq {

struct GptqOptions {
  double damping = 0.01;     ///< share of the mean of H's diagonal that is added to it; positive
  bool act_order = false;    ///< columns by falling diagonal of H, else as they lie
  std::int64_t samples = 0;  ///< images to look at; 0 is all of one epoch
};

/// Chooses the codes of linear layers and convolutions by second-order information (Frantar et al.,
/// arXiv:2210.17323): H = 2 X X^T of the layer's inputs in float, damped, a group of a grouped convolution
/// each its own; column i takes its nearest code, and its error over U_ii times row i of U leaves the columns
/// after it, inverse(H) = U^T U, in f64. Ranges stay as calibrated, per tensor, channel or block of weights,
/// in any order of columns.
///
/// The weights become code * scale, whose codes under the layer's quantizer are the chosen ones: training,
/// export and evaluation go on as ever. Layers are measured against the float weights and inputs, one pass
/// over the data for all; a row (output channel) that would be no nearer to them than the nearest codes keeps
/// those. Of large images 64 positions each are looked at. Reported: the mean squared error of an output.
/// Layers whose weights are not integers in fixed ranges are left alone and reported. Throws ArgumentError
/// for options out of range, no data, a model that is not calibrated; NumericError naming the layer for
/// a NaN.
Report gptq(Module& model, DataLoader& data, const GptqOptions& options = {});

}  // namespace fq::ptq
