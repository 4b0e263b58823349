#pragma once

/// What a layer's input looks like, from one pass over data.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fakequant/train/data/loader.h"
#include "fakequant/train/ptq/detail/weighted_layers.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::ptq {

/// Of the values that the product reads, in float, behind a pre_quant_scale.
struct InputStatistics {
  std::vector<float> largest;      ///< of each input channel, the largest magnitude
  std::vector<double> magnitudes;  ///< of each input channel, the sum of all magnitudes
  std::int64_t values = 0;         ///< of each input channel
  /// E[x x^T] of the rows that the weight's rows multiply, f32 [columns, columns] a group: the mean squared
  /// error of a layer whose weight row is off by d is d^T gram d. Empty unless asked for.
  std::vector<Tensor> gram;
};

struct StatisticsOptions {
  std::int64_t samples = 0;                  ///< images to look at; 0 is all
  std::shared_ptr<Communicator> ranks = {};  ///< that share them out; none: this process alone
  bool gram = true;                          ///< takes 16 columns^2 bytes a group
  std::int64_t positions = 64;  ///< of each image that enter gram: others of a large one are passed over
};

/// By path, with the bits of one process on any number of ranks. Throws as `run_batches`, and NumericError
/// naming the layer for a NaN or infinity.
[[nodiscard]] std::map<std::string, InputStatistics> input_statistics(
    Module& model, DataLoader& data, const std::vector<WeightedLayer>& layers,
    const StatisticsOptions& options, const std::string& function);

/// sum over rows of d^T gram d, d = `difference` [rows, columns]; by row.
[[nodiscard]] std::vector<double> row_errors(const WeightedLayer& layer, const InputStatistics& statistics,
                                             const Tensor& difference);
/// The same products d^T gram, [rows, columns].
[[nodiscard]] Tensor times_gram(const WeightedLayer& layer, const InputStatistics& statistics,
                                const Tensor& difference);

}  // namespace fq::ptq
