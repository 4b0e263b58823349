#pragma once

/// An algorithm on weights around calibration, as the flags say.

#include <utility>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/network/network.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ptq/algorithms.h"

namespace fq::cli {

/// Throws ArgumentError for an algorithm with --state, with --merge if it changes the network before it is
/// calibrated, and where there are no `images` to look at.
void check_weight_algorithm(const ptq::Algorithm& algorithm, const Flags& flags, bool images);

/// Runs an algorithm, shared out by the ranks of the run, and tells what it did, layer by layer.
class WeightAlgorithm {
 public:
  explicit WeightAlgorithm(ptq::Algorithm algorithm) : algorithm_(std::move(algorithm)) {}

  /// Throws ArgumentError, after calibration, when it found no layer that it can change.
  void before(Network& network, const DataLoader& data, Output& output);
  void after(Network& network, const DataLoader& data, Output& output);

 private:
  void tell(const ptq::Report& report, Output& output);

  ptq::Algorithm algorithm_;
  std::size_t changed_ = 0;
  std::string reason_;  ///< against the first layer that was left alone
};

}  // namespace fq::cli
