#pragma once

/// A batch's outputs and labels as a table: a row for each answer, a column for each class or number.

#include <cstdint>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::detail {

/// As train/metrics.h tells classes from what is yes or no and from numbers.
class PredictionTable {
 public:
  /// Throws ArgumentError for shapes that do not go together.
  PredictionTable(const Tensor& outputs, const Tensor& labels);

  /// Whether the labels are classes, one of the columns each.
  [[nodiscard]] bool one_of_many() const noexcept { return !labels_.empty(); }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t columns() const noexcept { return columns_; }

  [[nodiscard]] double output(std::int64_t row, std::int64_t column) const {
    return outputs_[place(row, column)];
  }
  /// 1 for the class of the row, where the labels are classes.
  [[nodiscard]] double target(std::int64_t row, std::int64_t column) const;
  /// The class of a row; -1 for one that counts for nothing.
  [[nodiscard]] std::int64_t label(std::int64_t row) const { return labels_[static_cast<std::size_t>(row)]; }
  /// The first largest column; -1 for a row with a NaN.
  [[nodiscard]] std::int64_t answer(std::int64_t row) const;
  /// How many columns come before that one when they are sorted.
  [[nodiscard]] std::int64_t rank(std::int64_t row, std::int64_t column) const;
  /// The row's outputs; their softmax, where the labels are classes.
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
