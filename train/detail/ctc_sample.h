#pragma once

/// The sums over all placements of a sequence of labels, in logarithms (Graves et al. 2006).

#include <cstdint>
#include <vector>

namespace fq::detail {

/// Outputs of one sample, [C, L].
struct CtcSample {
  const double* outputs;
  std::int64_t classes, stride;  ///< `stride` places lie in a row of a class
  std::int64_t places;           ///< that count
};

/// -log P(labels); infinite where they do not fit.
[[nodiscard]] double ctc_loss(const CtcSample& sample, const std::vector<std::int64_t>& labels,
                              std::int64_t blank);
/// The same, and adds the gradient of it with respect to the outputs, softmax - share of the placements,
/// times `weight`, to `gradient`, laid out as the outputs; NaN where the loss is infinite.
double ctc_loss(const CtcSample& sample, const std::vector<std::int64_t>& labels, std::int64_t blank,
                double weight, double* gradient);

}  // namespace fq::detail
