#pragma once

/// Histograms as figures: axes and scales of a plot, and SVG elements for a page.

#include <string>
#include <vector>

#include "fakequant/calib/histogram.h"
#include "fakequant/train/calibration/calibration_report.h"

namespace fq::html {

/// Area of a plot in units of the figure. y points downwards.
struct PlotArea {
  double left = 0, right = 0, top = 0, bottom = 0;
  [[nodiscard]] int columns() const noexcept { return static_cast<int>((right - left) / 2); }
};

/// Returns the largest of 1, 2 and 5 times a power of ten that fits at least four times into `end`.
[[nodiscard]] double round_step(double end);

/// Horizontal axis of magnitudes, from 0 at the left of the area to `end` at the right.
struct Axis {
  PlotArea area;
  double end = 1;

  [[nodiscard]] double at(double value) const noexcept {
    return area.left + (area.right - area.left) * value / end;
  }
  /// Returns the axis below the plot with marks at round numbers.
  [[nodiscard]] std::string ticks() const;
};

/// Returns the counts in `columns` equal parts of [0, end]. Divides a bin that covers several parts among
/// them.
[[nodiscard]] std::vector<double> plot_columns(const Histogram& histogram, double end, int columns);

/// Logarithmic vertical scale, from half a count to the largest count.
class LogScale {
 public:
  LogScale(const std::vector<double>& columns, PlotArea area);
  [[nodiscard]] double at(double count) const;
  /// Returns labelled lines at powers of ten.
  [[nodiscard]] std::string grid() const;
  /// Returns the attribute `d` of a path around the columns [begin, end). Returns an empty text if these
  /// columns have no counts.
  [[nodiscard]] std::string outline(const std::vector<double>& columns, std::size_t begin,
                                    std::size_t end) const;

 private:
  PlotArea area_;
  double decades_ = 1;  // powers of ten above half a count
};

/// Returns a figure of counts on a logarithmic scale over magnitudes. Counts outside of the range in force
/// have another colour. Below the plot, the range in force and each method have a row with a mark at their
/// amax, or a bar from the lowest to the highest amax of several channels. Colours belong to the classes
/// m-<method>.
[[nodiscard]] std::string histogram_svg(const QuantizerReport& quantizer);

/// Returns the outline with the range in force, as a small figure for a table row.
[[nodiscard]] std::string histogram_thumbnail(const QuantizerReport& quantizer);

}  // namespace fq::html
