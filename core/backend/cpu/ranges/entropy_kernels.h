#pragma once

/// The sum that the entropy search spends its time on, for every vector instruction set.

#include <cstddef>

namespace fq::cpu {

/// Sums over the first k bins, for every k: of counts, and of bins that are not empty.
struct EntropySums {
  const double *counts, *filled;
};

/// The first `bins` bins cut into 2^levels_log2 levels (8 or more), level d up to bin ceil((d + 1) * bins /
/// levels): the sum of count * log(count / filled bins) of the levels that are not empty, up to rounding.
[[nodiscard]] double level_entropy(const EntropySums& sums, std::size_t bins, int levels_log2);

}  // namespace fq::cpu
