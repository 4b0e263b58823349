#pragma once

/// Learned rounding of AdaRound: for each weight a share h in 0 .. 1 of the step from its lower code to the
/// next.

#include <vector>

#include "fakequant/train/ptq/detail/input_statistics.h"
#include "fakequant/train/ptq/detail/matrices.h"
#include "fakequant/train/ptq/detail/weight_grid.h"

namespace fq::ptq {

class SoftRounding {
 public:
  /// Starts with the h that represents the weight itself. The arguments must outlive this object.
  SoftRounding(const WeightedLayer& layer, const WeightGrid& grid, const InputStatistics& statistics);

  /// Returns V, [rows, columns]: h is the sigmoid of V, stretched to [-0.1, 1.1] and clamped to [0, 1].
  [[nodiscard]] const Variable& v() const noexcept { return v_; }
  /// Computes h from V. A clamped h has no gradient, so it is fixed and its V is not read again. Returns the
  /// number of weights left to learn.
  std::size_t relax();
  /// Returns the gradient by V of the loss: the squared error of the layer's output, scaled so that the
  /// nearest codes of a row give 1 per weight, plus `regularization` times the sum of 1 - |2h - 1|^beta.
  /// Products with E[x x^T] neglect 1e-4 of the input's power.
  [[nodiscard]] Tensor gradient(float regularization, float beta) const;
  /// Returns the chosen weights: rounded up if h >= 0.5, then improved by `flip_roundings`.
  [[nodiscard]] Tensor chosen() const;

 private:
  [[nodiscard]] Tensor products() const;

  const WeightedLayer& layer_;
  const WeightGrid& grid_;
  const InputStatistics& statistics_;
  std::vector<GramProduct> grams_;      ///< one per group
  std::vector<float> floors_, lowest_;  ///< lower codes, and their values minus the weights
  std::vector<float> h_, slopes_;       ///< h, and dh/dV
  std::vector<double> row_factors_;
  std::vector<std::size_t> open_;  ///< weights whose h is not clamped
  Variable v_;
};

/// Rounds single weights the other way while that lowers the squared error of the layer's output. Each row
/// first flips the weight with the largest gain. At the end no single flip helps. `floors` are the lower
/// codes; `up` says which weights take the next code, and is updated.
void flip_roundings(const WeightedLayer& layer, const WeightGrid& grid, const InputStatistics& statistics,
                    const std::vector<float>& floors, std::vector<bool>& up);

}  // namespace fq::ptq
