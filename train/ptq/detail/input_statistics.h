#pragma once

/// Statistics of the inputs of weighted layers, from one pass over the data.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fakequant/train/data/loader.h"
#include "fakequant/train/ptq/detail/weighted_layers.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::ptq {

/// Statistics of the float values that the layer's product reads, after the pre_quant_scale.
struct InputStatistics {
  std::vector<float> largest;      ///< largest magnitude of each input channel
  std::vector<double> magnitudes;  ///< sum of the magnitudes of each input channel
  std::int64_t values = 0;         ///< number of values of each input channel
  /// E[x x^T] of the input rows that the weight rows multiply: f32 [columns, columns] per group. The mean
  /// squared error of a layer whose weight row is off by d is d^T gram d. Empty unless requested.
  std::vector<Tensor> gram;
};

struct StatisticsOptions {
  std::int64_t samples = 0;                  ///< number of images; 0 uses all
  std::shared_ptr<Communicator> ranks = {};  ///< processes that share the data; null: this process
  bool gram = true;                          ///< computes gram; needs 16 columns^2 bytes per group
  std::int64_t positions = 64;               ///< largest number of positions per image in gram
};

/// Returns the statistics by layer path. The bits do not depend on the number of ranks. Throws the errors of
/// `run_batches`, and NumericError with the layer for a NaN or infinity.
[[nodiscard]] std::map<std::string, InputStatistics> input_statistics(
    Module& model, DataLoader& data, const std::vector<WeightedLayer>& layers,
    const StatisticsOptions& options, const std::string& function);

/// Returns d^T gram d for each row d of `difference` [rows, columns].
[[nodiscard]] std::vector<double> row_errors(const WeightedLayer& layer, const InputStatistics& statistics,
                                             const Tensor& difference);
/// Returns d^T gram for each row d of `difference`, [rows, columns].
[[nodiscard]] Tensor times_gram(const WeightedLayer& layer, const InputStatistics& statistics,
                                const Tensor& difference);

}  // namespace fq::ptq
