#include <algorithm>
#include <cmath>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/detail/metrics/metrics.h"
#include "fakequant/train/detail/prediction_table.h"

namespace fq::detail {
namespace {

/// Sums over the distances of numbers.
class Distances : public Metric {
 public:
  void add(const Tensor& outputs, const Tensor& labels) override {
    const PredictionTable table(outputs, labels);
    FQ_CHECK(!table.one_of_many(), "metric", "the outputs are {}, the labels {}: use one shape for numbers",
             outputs.describe(), labels.describe());
    columns_.resize(std::max(columns_.size(), static_cast<std::size_t>(table.columns())));
    for (std::int64_t i = 0; i < table.rows(); ++i)
      for (std::int64_t c = 0; c < table.columns(); ++c) add(c, table.output(i, c), table.target(i, c));
  }

 protected:
  struct Column {
    std::int64_t count = 0;
    double first = 0, sum = 0, squares = 0;  ///< of targets minus the first one
    double absolute = 0, squared = 0;        ///< of distances

    [[nodiscard]] double variation() const { return squares - sum * sum / static_cast<double>(count); }
  };
  // Returns the mean of a sum over the values of all columns.
  [[nodiscard]] double total(double Column::*of) const {
    double sum = 0;
    std::int64_t count = 0;
    for (const auto& column : columns_) {
      sum += column.*of;
      count += column.count;
    }
    return count == 0 ? kUndefined : sum / static_cast<double>(count);
  }
  std::vector<Column> columns_;

 private:
  void add(std::int64_t c, double output, double target) {
    Column& column = columns_[static_cast<std::size_t>(c)];
    // Relative to the first target: sums of squares of large targets with a small variance would cancel.
    if (column.count++ == 0) column.first = target;
    const double moved = target - column.first, distance = output - target;
    column.sum += moved;
    column.squares += moved * moved;
    column.absolute += std::abs(distance);
    column.squared += distance * distance;
  }
};

class Mae : public Distances {
  [[nodiscard]] double value() const override { return total(&Column::absolute); }
};
class Rmse : public Distances {
  [[nodiscard]] double value() const override { return std::sqrt(total(&Column::squared)); }
};
class R2 : public Distances {
  [[nodiscard]] double value() const override {
    return defined_mean(columns_.size(), [&](std::size_t c) {
      const double variation = columns_[c].variation();
      // A column whose target does not vary has no R2; the mean skips it.
      return variation > 0 ? 1 - columns_[c].squared / variation : kUndefined;
    });
  }
};

}  // namespace

std::unique_ptr<Metric> make_mae() { return std::make_unique<Mae>(); }
std::unique_ptr<Metric> make_rmse() { return std::make_unique<Rmse>(); }
std::unique_ptr<Metric> make_r2() { return std::make_unique<R2>(); }

}  // namespace fq::detail
