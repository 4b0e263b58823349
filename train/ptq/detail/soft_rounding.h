#pragma once

/// What AdaRound learns: for each weight a share h in 0 .. 1 of the way from its lower code to the next one.

#include <vector>

#include "fakequant/train/ptq/detail/input_statistics.h"
#include "fakequant/train/ptq/detail/matrices.h"
#include "fakequant/train/ptq/detail/weight_grid.h"

namespace fq::ptq {

class SoftRounding {
 public:
  /// Begins at h = the share that the weight itself has. The arguments must outlive it.
  SoftRounding(const WeightedLayer& layer, const WeightGrid& grid, const InputStatistics& statistics);

  /// V, [rows, columns]: h is the sigmoid of V, stretched to [-0.1, 1.1] and cut to [0, 1].
  [[nodiscard]] const Variable& v() const noexcept { return v_; }
  /// Takes h from V. Where h was cut no gradient moves it any more, and V is not read again. Returns how many
  /// are left to learn.
  std::size_t relax();
  /// By V, of the squared error of the layer's output, which is 1 a weight for the nearest codes of a row,
  /// plus `regularization` times the sum of 1 - |2h - 1|^beta. Products with E[x x^T] leave out what 1e-4 of
  /// the input's power makes.
  [[nodiscard]] Tensor gradient(float regularization, float beta) const;
  /// Codes by h, up from 0.5 on, and then by `flip_roundings`; as values of the grid.
  [[nodiscard]] Tensor chosen() const;

 private:
  [[nodiscard]] Tensor products() const;

  const WeightedLayer& layer_;
  const WeightGrid& grid_;
  const InputStatistics& statistics_;
  std::vector<GramProduct> grams_;      ///< of each group
  std::vector<float> floors_, lowest_;  ///< lower codes, and what their values are off
  std::vector<float> h_, slopes_;       ///< dh/dV
  std::vector<double> row_factors_;
  std::vector<std::size_t> open_;  ///< whose h is not cut
  Variable v_;
};

/// Rounds single weights the other way while that lowers the squared error of the layer's output, in each row
/// the one that lowers it most first: at the end no single change helps. `floors` are the lower codes, `up`
/// which weights take the next one; it is changed.
void flip_roundings(const WeightedLayer& layer, const WeightGrid& grid, const InputStatistics& statistics,
                    const std::vector<float>& floors, std::vector<bool>& up);

}  // namespace fq::ptq
