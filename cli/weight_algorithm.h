#pragma once

/// An algorithm on weights around calibration, as the flags say.

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/network.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/layers/config/quant_config.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ptq/algorithms.h"

namespace fq::cli {

/// Runs ptq::Algorithm and tells what it did, layer by layer.
class WeightAlgorithm {
 public:
  /// Throws ArgumentError for an algorithm with --state, with --merge if it changes the network before it is
  /// calibrated, and where there are no `images` to look at.
  WeightAlgorithm(const QuantConfig& config, const Flags& flags, bool images);

  /// Throws ArgumentError, after calibration, when it found no layer that it can change.
  void before(Network& network, DataLoader& data, Output& output);
  void after(Network& network, DataLoader& data, Output& output);

 private:
  void tell(const ptq::Report& report, Output& output);

  ptq::Algorithm algorithm_;
  std::size_t changed_ = 0;
  std::string reason_;  ///< against the first layer that was left alone
};

}  // namespace fq::cli
