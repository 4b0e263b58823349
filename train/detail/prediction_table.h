#pragma once

/// Outputs and labels of a batch as a table: one row per prediction, one column per class or number.

#include <cstdint>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::detail {

/// Table of a batch. The shapes decide whether labels are classes, binary or numbers, as described in
/// train/metrics.h.
class PredictionTable {
 public:
  /// Throws ArgumentError if the shapes of outputs and labels do not fit.
  PredictionTable(const Tensor& outputs, const Tensor& labels);

  /// Returns whether each label is the class of one column.
  [[nodiscard]] bool one_of_many() const noexcept { return !labels_.empty(); }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t columns() const noexcept { return columns_; }

  [[nodiscard]] double output(std::int64_t row, std::int64_t column) const {
    return outputs_[place(row, column)];
  }
  /// Returns the target of a row and column. If labels are classes, it is 1 for the class of the row, else 0.
  [[nodiscard]] double target(std::int64_t row, std::int64_t column) const;
  /// Returns the class of a row; -1 for a label that is ignored.
  [[nodiscard]] std::int64_t label(std::int64_t row) const { return labels_[static_cast<std::size_t>(row)]; }
  /// Returns the column of the largest output, the first of equal ones; -1 for a row with NaN.
  [[nodiscard]] std::int64_t answer(std::int64_t row) const;
  /// Returns the number of columns before `column` when a row is sorted by output, largest first.
  [[nodiscard]] std::int64_t rank(std::int64_t row, std::int64_t column) const;
  /// Returns the outputs of a row, or their softmax if labels are classes.
  [[nodiscard]] std::vector<double> scores(std::int64_t row) const;

 private:
  [[nodiscard]] std::size_t place(std::int64_t row, std::int64_t column) const {
    return static_cast<std::size_t>((row / inner_ * columns_ + column) * inner_ + row % inner_);
  }

  std::int64_t rows_ = 0, columns_ = 0, inner_ = 1;
  std::vector<double> outputs_, targets_;
  std::vector<std::int64_t> labels_;
};

}  // namespace fq::detail
