#pragma once

/// SVG figures of numbers over the steps of a run, and labels of points in a figure.

#include <string>
#include <utility>
#include <vector>

#include "fakequant/report/detail/histogram_plot.h"

namespace fq::html {

/// Vertical scale: numbers from the bottom to the top of an area.
struct Scale {
  PlotArea area;
  double low = 0, high = 1;
  bool logarithmic = false;

  [[nodiscard]] double at(double value) const;
  /// Returns labelled lines at round numbers.
  [[nodiscard]] std::string grid() const;
};

/// A line of a plot: pairs of a step and a number. Numbers that are not finite are skipped.
struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points = {};
};

/// Vertical scale. `logarithmic` applies to positive numbers that span more than a factor of 50.
enum class Span { linear, logarithmic };

/// Returns a figure with title, legend and axes, from step 0 to `last_step`. Returns an empty text if no
/// curve has a point.
[[nodiscard]] std::string line_plot(const std::string& title, const std::vector<Curve>& curves,
                                    double last_step, Span span = Span::linear);

/// Returns the line from its smallest to its largest number, as a small figure for a table row.
[[nodiscard]] std::string sparkline(const Curve& curve, double last_step);

struct NamedPoint {
  double x = 0, y = 0;  ///< in units of the figure
  std::string name;
};

/// Label of one line of text. (x, y) is the left end of its baseline; with `ends_here`, the right end.
struct PointLabel {
  double x = 0, y = 0;
  bool ends_here = false;
  std::string text;
  double from_x = 0, from_y = 0;  ///< the labelled point
  bool away = false;              ///< far from the point: a line should connect them
};

/// Places the labels of points. Points at the same position share one label, "a, b and 4 more". Long names
/// lose their beginning. The highest points come first, and a point without free space in the area has no
/// label. Text widths are generous estimates for a sans-serif font of that size.
[[nodiscard]] std::vector<PointLabel> place_labels(const std::vector<NamedPoint>& points, PlotArea area,
                                                   double font_size);

}  // namespace fq::html
