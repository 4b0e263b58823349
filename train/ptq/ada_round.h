#pragma once

/// AdaRound: for each weight, up or down is learned.

#include <cstdint>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ptq/report.h"

namespace fq::ptq {

struct AdaRoundOptions {
  int iterations = 300;
  double learning_rate = 0.02;  ///< of Adam
  double regularization = 0.5;  ///< weight of the term that drives h to 0 or 1, beside an error of 1 a weight
  double warmup = 0.2;          ///< share of the iterations without that term
  double beta_start = 20, beta_end = 2;  ///< its exponent, annealed linearly
  std::int64_t samples = 0;              ///< images to look at; 0 is all of one epoch
};

/// Learns whether each weight is rounded down or up (Nagel et al., arXiv:2004.10568): codes floor(w / scale)
/// + h(V), h the sigmoid stretched to [-0.1, 1.1] and cut to [0, 1], V by Adam so that the squared error of
/// the layer's output, relative to that of the nearest codes, is least, plus sum of 1 - |2h - 1|^beta; beta
/// falls so that h ends at 0 or 1. The error over all of the data at once comes from E[x x^T] of the layer's
/// inputs in float: one pass over it, whatever the iterations. Beyond the paper, single weights are then
/// rounded the other way as long as that lowers the error.
///
/// What becomes of weights and ranges, which layers are left alone, what is reported and thrown: as `gptq`.
Report ada_round(Module& model, DataLoader& data, const AdaRoundOptions& options = {});

}  // namespace fq::ptq
