#pragma once

/// Numbers over the steps of a run as SVG elements, and labels of points in a figure.

#include <string>
#include <utility>
#include <vector>

#include "fakequant/report/detail/histogram_plot.h"

namespace fq::html {

/// One line: pairs of a step and a number; those that are not finite are left out.
struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points = {};
};

/// Whether numbers that span more than a factor of 50, all above 0, are put on a logarithmic scale.
enum class Span { linear, logarithmic };

/// A figure with its title, legend and axes, from step 0 to `last_step`; empty where no curve has a point.
[[nodiscard]] std::string line_plot(const std::string& title, const std::vector<Curve>& curves,
                                    double last_step, Span span = Span::linear);

/// The line alone from the least to the largest number, to stand in a line of a table.
[[nodiscard]] std::string sparkline(const Curve& curve, double last_step);

struct NamedPoint {
  double x = 0, y = 0;  ///< in units of the figure
  std::string name;
};

/// One line of text, whose left end, or with `ends_here` right end, and baseline are there.
struct PointLabel {
  double x = 0, y = 0;
  bool ends_here = false;
  std::string text;
  double from_x = 0, from_y = 0;  ///< the point that it is of
  bool away = false;              ///< so far from it that a line should lead there
};

/// Names of points that lie on each other stand in one label, "a, b and 4 more"; long names are cut at their
/// begin. The highest points come first, and one that finds no room within the area has no label. Widths
/// are estimated, as of a sans-serif font of that size, generously.
[[nodiscard]] std::vector<PointLabel> place_labels(const std::vector<NamedPoint>& points, PlotArea area,
                                                   double font_size);

}  // namespace fq::html
