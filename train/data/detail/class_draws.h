#pragma once

/// ClassDraws: selection of an epoch's samples by class weights.

#include <cstdint>
#include <optional>
#include <vector>

#include "fakequant/train/data/loader.h"

namespace fq::detail {

class ClassDraws {
 public:
  /// `weights` has one value per class, `labels` is i64 [size].
  ClassDraws(const Tensor& labels, const std::vector<double>& weights);

  /// Returns the `size` samples of an epoch in ascending order, a function of (labels, weights, seed, epoch).
  [[nodiscard]] std::vector<std::int64_t> epoch_samples(std::uint64_t seed, std::int64_t epoch) const;
  /// Returns the number of draws of each class.
  [[nodiscard]] std::vector<std::int64_t> counts(std::uint64_t seed, std::int64_t epoch) const;

 private:
  std::vector<std::vector<std::int64_t>> samples_;  // samples of each class
  std::vector<double> shares_;                      // samples of each class per epoch, with fractions
};

/// Returns the draws that `options` request; empty without class weights. Throws ArgumentError for data
/// without class labels in memory, another number of weights than of classes, weights that are all 0, and a
/// positive weight of a class without samples.
[[nodiscard]] std::optional<ClassDraws> class_draws(const Dataset& data, const LoaderOptions& options);

}  // namespace fq::detail
