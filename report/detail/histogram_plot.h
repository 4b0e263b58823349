#pragma once

/// Histograms as figures: axes and scales of a plot, and SVG elements for a page.

#include <string>
#include <vector>

#include "fakequant/calib/histogram.h"
#include "fakequant/train/calibration/calibration_report.h"

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

/// A figure: counts on a logarithmic scale over magnitudes, what lies beyond the range in force in another
/// colour, and below a row for the range in force and each method, with a mark at its amax (a bar from the
/// lowest to the highest where there are several). Colours are those of the classes m-<method> of the page.
[[nodiscard]] std::string histogram_svg(const QuantizerReport& quantizer);

/// The outline alone, with the range in force, to stand in a line of a table.
[[nodiscard]] std::string histogram_thumbnail(const QuantizerReport& quantizer);

}  // namespace fq::html
