#pragma once

/// AWQ, scales: channels that activations make important get finer weights.

#include <cstdint>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ptq/report.h"

namespace fq::ptq {

struct AwqLiteOptions {
  double alpha_step = 0.1;   ///< of the search, 0.001 to 1
  std::int64_t samples = 0;  ///< images to look at; 0 is all of one epoch
};

/// Multiplies the weights that read input channel j by s_j = (mean|x_j|)^alpha, divided by the square root of
/// the largest times the smallest s, and divides the channel by it; alpha of 0, step, .. 1 is the one whose
/// quantized weights give the least squared error of the layer's output, inputs in float (Lin et al.,
/// arXiv:2306.00978; alpha = 0 changes nothing, so that no layer becomes worse on the data). Where the
/// division goes, what is left alone and when: as `smooth_quant`. Layers that share their input share alpha.
///
/// Weights are quantized as their descriptors say, with ranges by their calib_method. One pass over the data.
/// Reported: the mean squared error of an output, before and after. Throws as `smooth_quant`.
Report awq_lite(Module& model, DataLoader& data, const AwqLiteOptions& options = {});

}  // namespace fq::ptq
