#pragma once

/// Input rows that a layer multiplies, and their sums for `input_statistics`.

#include <cstdint>
#include <vector>

#include "fakequant/train/ptq/detail/input_statistics.h"
#include "fakequant/train/ptq/detail/weighted_layers.h"
#include "fakequant/train/ranks/detail/binned_sum.h"

namespace fq::ptq {

/// Returns the input rows of one group as f32 [columns, positions]: weight column k multiplies element k of
/// position p. Takes at most `limit` evenly spaced output positions per image, with another start in each
/// image. `x` is the layer's input, row-major. Takes all rows of a linear layer.
[[nodiscard]] Tensor patches(const WeightedLayer& layer, const Tensor& x, std::int64_t group,
                             std::int64_t limit);

class InputSums {
 public:
  /// `layer` must outlive this object.
  InputSums(const WeightedLayer& layer, const StatisticsOptions& options);

  /// Adds the input of one batch, row-major on the CPU. Throws NumericError with the layer for a NaN or
  /// infinity.
  void add(const Tensor& x);
  /// Returns the statistics of the batches of all ranks. All ranks must call it.
  [[nodiscard]] InputStatistics merged(Communicator& ranks);

 private:
  void add_channels(const Tensor& x);
  void add_gram(const Tensor& x);
  [[nodiscard]] std::vector<Tensor> mean_gram(std::int64_t rows) const;

  const WeightedLayer& layer_;
  std::int64_t positions_;
  std::vector<float> largest_;
  BinnedSum magnitudes_, gram_;  // gram_ covers all groups; empty unless requested
  std::int64_t values_ = 0, rows_ = 0;
};

}  // namespace fq::ptq
