#include <vector>

#include "fakequant/cli/initial_weights.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/network/network.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/calibration/detail/calibration_targets.h"
#include "reader.h"

/// Loads into the network that the states of the corpus were collected on. The network is not changed.
void fq::fuzz::read_calibration(const std::string& path) {
  static const auto network =
      cli::load_network(std::string(FAKEQUANT_SOURCE_DIR "/tests/fuzz/corpus/checkpoint/int8.h5"));
  std::vector<TensorQuantizer*> quantizers;
  for (const auto& entry : named_quantizers(network.module())) quantizers.push_back(entry.quantizer);
  const detail::CalibrationUndo undo(quantizers);
  (void)load_calibration(network.module(), path);
  (void)merge_calibration(network.module(), path);
}
