#pragma once

/// Calibration of a network as its quantization config says.
///
///     Network network = Network::load("float.h5");
///     fold_and_quantize(network, preset_config("w4a8"));
///     calibrate(network, data, {.samples = 512});

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/network/network.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/calibration/calibration_state.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/sensitivity/auto_quantize.h"

namespace fq {

/// Samples and settings of `calibrate`. The config of the network has methods, rules and algorithms.
struct NetworkCalibrateOptions {
  std::int64_t samples = 512;  ///< number of samples, drawn by seed 0; 0 for all
  LoaderOptions batches = {.batch_size = 64, .shuffle = false};
  std::optional<double> percentile = {};  ///< replaces the percentile of the config
  BatchMask mask = {};                    ///< padding that observers do not see
  bool keep_known = false;                ///< quantizers that have a range keep it
  /// Calibration states (train/calibration/calibration_state.h) to merge before the data is observed. Their
  /// samples are not observed again.
  std::vector<std::string> states = {};
  bool keep_shares = false;  ///< returns what identifies the samples, for `save_calibration`
  /// Processes that share the batches; null for one.
  std::shared_ptr<Communicator> ranks = {};
  /// Called with progress as text.
  std::function<void(const std::string& line)> on_line = {};
  /// Called after each half of an algorithm on weights.
  std::function<void(const std::string& algorithm, const ptq::Report&)> on_weights = {};
};

/// The samples that observers have seen.
struct CollectedSamples {
  std::int64_t count = 0;
  std::vector<CalibrationShare> shares;  ///< sorted; empty without states and `keep_shares`
};

/// Folds batch norm, unless it is folded already or to be kept, and places quantizers.
void fold_and_quantize(Network& network, const nlohmann::ordered_json& config, bool keep_batch_norm = false);

/// Chooses the ranges of a quantized network: merges states, observes the data (null for states alone),
/// chooses ranges and adjusts them by the postprocess of the config. The config's algorithm on weights runs
/// on the same samples. Throws ArgumentError as `fq::calibrate`, for states that have samples in common, and
/// for an algorithm that changes no layer.
CollectedSamples calibrate(Network& network, std::shared_ptr<const Dataset> data,
                           const NetworkCalibrateOptions& options = {});

/// Gives each layer of a float network a format (train/sensitivity/auto_quantize.h). The network is then
/// quantized and calibrated by the plan, which its identity keeps.
QuantizationPlan auto_quantize(Network& network, DataLoader& data, const AutoQuantizeOptions& options);

}  // namespace fq
