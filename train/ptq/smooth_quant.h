#pragma once

/// SmoothQuant: outliers of activations moved into weights.

#include <cstdint>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ptq/report.h"

namespace fq::ptq {

struct SmoothQuantOptions {
  double alpha = 0.5;        ///< 0 .. 1: how much of the range of activations moves
  std::int64_t samples = 0;  ///< images to look at; 0 is all of one epoch
};

/// Divides input channel j of each linear layer and convolution by s_j = max|x_j|^alpha / max|w_j|^(1-alpha)
/// and multiplies the weights that read it by s_j (Xiao et al., arXiv:2211.10438). The division goes into the
/// layer or norm that makes the channels where the graph leads from it to such layers only, through ReLU,
/// pooling and flattening; otherwise it is the pre_quant_scale of the input quantizer. Layers that share
/// their input have one s, the largest of each channel counting. Channels that are always 0, or are read by
/// zeros, stay.
///
/// `model` may be quantized, but not yet calibrated: ranges are chosen after this. In float it computes the
/// same up to rounding. One pass over the data. Reported: the largest |x| of the input, by ratio to the mean
/// of its channels' largest, before and after. Throws ArgumentError for alpha out of range, when there is
/// no data, for a calibrated model; NumericError naming the layer for a NaN.
Report smooth_quant(Module& model, DataLoader& data, const SmoothQuantOptions& options = {});

}  // namespace fq::ptq
