#include "fakequant/cli/network.h"
#include "fakequant/train/calibration/calibration_state.h"
#include "reader.h"

/// Into the network that the states of the corpus were collected on.
void fq::fuzz::read_calibration(const std::string& path) {
  const auto network =
      cli::load_network(std::string(FAKEQUANT_SOURCE_DIR "/tests/fuzz/corpus/checkpoint/int8.h5"));
  (void)load_calibration(*network.module, path);
  (void)merge_calibration(*network.module, path);
}
