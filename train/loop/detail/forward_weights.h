#pragma once

/// Weights that a step computes with in place of their codes.

#include <cstdint>
#include <vector>

#include "fakequant/train/loop/detail/static_weights.h"

namespace fq::detail {

/// Puts float values where weights on static grids are, for one forward and backward pass; the gradients that
/// come back are those of the weights.
class ForwardWeights {
 public:
  /// The model outlives it and keeps its parameters. Throws ArgumentError where there is no such weight.
  explicit ForwardWeights(Module& model);

  /// PARQ (Jin et al. 2025): between two codes with the middle m a weight w becomes m + (w - m) / slope, held
  /// between the two; beyond its range it is clipped. 1 leaves it as it is, and towards 0 it becomes its
  /// code.
  void soften(double inverse_slope);
  /// Quantization noise (Fan et al. 2021): a random share of the weights stays as it is, the others are on
  /// their codes. The choice is a function of seed and step.
  void leave_some(double share, std::uint64_t seed, std::int64_t step);
  /// Stochastic rounding: a weight within its range is on the code above it with the probability of the way
  /// from the code below, else on that one. Drawn likewise.
  void round_at_random(std::uint64_t seed, std::int64_t step);
  /// Puts the weights back. Quantizers of weights are off until then.
  void restore();

 private:
  template <class Value>
  void replace(const Value& value);
  /// A number of 0 to 1 for each element of each weight.
  [[nodiscard]] std::vector<std::vector<float>> drawn(std::uint64_t seed, std::int64_t step) const;

  std::vector<StaticWeight> weights_;
  std::vector<Tensor> kept_;
};

/// Restores the weights at the end of its block.
class ForwardWeightsScope {
 public:
  explicit ForwardWeightsScope(ForwardWeights* weights) : weights_(weights) {}
  ~ForwardWeightsScope() {
    if (weights_ != nullptr) weights_->restore();
  }
  ForwardWeightsScope(const ForwardWeightsScope&) = delete;  // tied to its block
  ForwardWeightsScope& operator=(const ForwardWeightsScope&) = delete;

 private:
  ForwardWeights* weights_;
};

}  // namespace fq::detail
