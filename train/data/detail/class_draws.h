#pragma once

/// Which samples an epoch has where classes are drawn by weights.

#include <cstdint>
#include <optional>
#include <vector>

#include "fakequant/train/data/loader.h"

namespace fq::detail {

class ClassDraws {
 public:
  /// `weights` of classes of [size] i64 labels.
  ClassDraws(const Tensor& labels, const std::vector<double>& weights);

  /// As many as there are labels, ascending. A function of (labels, weights, seed, epoch).
  [[nodiscard]] std::vector<std::int64_t> of_epoch(std::uint64_t seed, std::int64_t epoch) const;
  /// How many of them each class has.
  [[nodiscard]] std::vector<std::int64_t> counts(std::uint64_t seed, std::int64_t epoch) const;

 private:
  std::vector<std::vector<std::int64_t>> samples_;  // of each class
  std::vector<double> shares_;                      // samples of an epoch, not whole
};

/// Those that the options ask for, if they do. Throws ArgumentError for data without labels of classes in
/// memory, another number of weights than of classes, none above 0, and one above 0 for a class without
/// samples.
[[nodiscard]] std::optional<ClassDraws> class_draws(const Dataset& data, const LoaderOptions& options);

}  // namespace fq::detail
