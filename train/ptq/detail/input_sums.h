#pragma once

/// What `input_statistics` collects of one layer.

#include <cstdint>
#include <vector>

#include "fakequant/train/ptq/detail/input_statistics.h"
#include "fakequant/train/ranks/binned_sum.h"

namespace fq::ptq {

class InputSums {
 public:
  /// `layer` outlives it.
  InputSums(const WeightedLayer& layer, const StatisticsOptions& options);

  /// The input of one batch, row-major on the CPU. Throws NumericError naming the layer for a NaN or
  /// infinity.
  void add(const Tensor& x);
  /// Called by all ranks: of the batches of all of them.
  [[nodiscard]] InputStatistics merged(Communicator& ranks);

 private:
  void add_channels(const Tensor& x);
  void add_gram(const Tensor& x);
  [[nodiscard]] std::vector<Tensor> mean_gram(std::int64_t rows) const;

  const WeightedLayer& layer_;
  std::int64_t positions_;
  std::vector<float> largest_;
  BinnedSum magnitudes_, gram_;  // gram_ of all groups, none where it is not asked for
  std::int64_t values_ = 0, rows_ = 0;
};

}  // namespace fq::ptq
