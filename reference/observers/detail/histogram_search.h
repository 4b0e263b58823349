#pragma once

/// The search of torch's HistogramObserver.

#include <utility>
#include <vector>

namespace fq::torch_ref {

/// Counts in equal bins between two values.
struct Bins {
  const std::vector<float>& counts;
  float lower, upper;
};

/// First and last bin of the range that the search ends with.
[[nodiscard]] std::pair<int, int> best_bins(const Bins& bins);
/// The squared error of 256 codes between the ends of two bins.
[[nodiscard]] double quantization_error(const Bins& bins, int first, int last);

}  // namespace fq::torch_ref
