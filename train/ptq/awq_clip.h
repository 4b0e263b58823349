#pragma once

/// AWQ, clipping: ranges of weights lowered where that makes the output better.

#include <cstdint>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ptq/report.h"

namespace fq::ptq {

struct AwqClipOptions {
  double lowest = 0.5;       ///< share of a range that must stay, above 0 and at most 1
  double step = 0.05;        ///< of the search, 0.001 or more
  std::int64_t samples = 0;  ///< images to look at; 0 is all of one epoch
};

/// Multiplies each range of a weight (of a tensor, a channel or a block) by the share 1, 1 - step, .. lowest
/// whose codes give the least squared error of what this range's weights add to the output, inputs in float
/// (Lin et al., arXiv:2306.00978). Weights stay as they are.
///
/// `model` must be calibrated; one pass over the data. Reported: the mean squared error of an output.
/// Layers whose weights are not integers in fixed ranges are left alone and reported. Throws as `gptq`.
Report awq_clip(Module& model, DataLoader& data, const AwqClipOptions& options = {});

}  // namespace fq::ptq
