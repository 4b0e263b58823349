#pragma once

/// The parts of a histogram's figure.

#include <string>
#include <vector>

#include "fakequant/calib/histogram.h"

namespace fq::html {

/// In units of the figure, y downwards.
struct PlotArea {
  double left = 0, right = 0, top = 0, bottom = 0;
  [[nodiscard]] int columns() const noexcept { return static_cast<int>((right - left) / 2); }
};

/// The largest of 1, 2 and 5 times powers of ten that goes into `end` four times or more.
[[nodiscard]] double round_step(double end);

/// Magnitudes from 0 to `end`, from the left to the right of the area.
struct Axis {
  PlotArea area;
  double end = 1;

  [[nodiscard]] double at(double value) const noexcept {
    return area.left + (area.right - area.left) * value / end;
  }
  /// The line below the plot with marks at round numbers.
  [[nodiscard]] std::string ticks() const;
};

/// Counts of `columns` equal parts of [0, end]. A bin over several parts is shared among them.
[[nodiscard]] std::vector<double> plot_columns(const Histogram& histogram, double end, int columns);

/// Logarithmic, from half a count to the largest.
class LogScale {
 public:
  LogScale(const std::vector<double>& columns, PlotArea area);
  [[nodiscard]] double at(double count) const;
  /// Lines at powers of ten, labelled.
  [[nodiscard]] std::string grid() const;
  /// The `d` of a path around columns [begin, end); empty when they are.
  [[nodiscard]] std::string outline(const std::vector<double>& columns, std::size_t begin,
                                    std::size_t end) const;

 private:
  PlotArea area_;
  double decades_ = 1;  // above half a count
};

}  // namespace fq::html
