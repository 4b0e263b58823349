#pragma once

/// Where the names of points in a figure stand, so that none covers another name or a point.

#include <string>
#include <vector>

#include "fakequant/report/detail/histogram_plot.h"

namespace fq::html {

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
