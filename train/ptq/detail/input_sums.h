#pragma once

/// The input rows that a layer multiplies, and the sums of them that `input_statistics` collects.

#include <cstdint>
#include <vector>

#include "fakequant/train/ptq/detail/input_statistics.h"
#include "fakequant/train/ptq/detail/weighted_layers.h"
#include "fakequant/train/ranks/detail/binned_sum.h"

namespace fq::ptq {

/// f32 [columns, positions] of one group: column k of position p is what weight column k multiplies there. Of
/// each image at most `limit` output positions, evenly spread, beginning elsewhere in each image. x is what
/// the layer reads, row-major; of a linear layer all rows are taken.
[[nodiscard]] Tensor patches(const WeightedLayer& layer, const Tensor& x, std::int64_t group,
                             std::int64_t limit);

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
