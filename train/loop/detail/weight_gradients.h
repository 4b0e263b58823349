#pragma once

/// Gradients of weights that know where between two codes a weight is.

#include <vector>

#include "fakequant/train/loop/detail/static_weights.h"

namespace fq::detail {

/// Of a weight w on a static grid, with codes q of scale s: d = w - q * s where |w| <= amax, 0 elsewhere.
class WeightGradients {
 public:
  /// The model outlives it and keeps its parameters. Throws ArgumentError where there is no such weight.
  explicit WeightGradients(Module& model);

  /// EWGS (Lee et al. 2021): g becomes g * (1 + delta * sign(g) * d / s).
  void scale_elementwise(double delta);
  /// Adds the gradient of strength * sum(d^2) with codes that stay (Nagel et al. 2022): 2 * strength * d.
  void pull_to_codes(double strength);

 private:
  std::vector<StaticWeight> weights_;
};

}  // namespace fq::detail
