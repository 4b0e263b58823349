#pragma once

/// What an algorithm on weights and scales did.

#include <string>
#include <vector>

namespace fq::ptq {

/// One layer. `before` and `after` are what the algorithm makes smaller, as its header says; NaN where it
/// measures nothing.
struct LayerReport {
  std::string path;
  double before = 0, after = 0;
};

struct SkippedLayer {
  std::string path, reason;  ///< "has no bias"
};

struct Report {
  std::vector<LayerReport> layers;    ///< changed, in the order of execution
  std::vector<SkippedLayer> skipped;  ///< left as they were
};

}  // namespace fq::ptq
