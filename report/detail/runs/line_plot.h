#pragma once

/// Numbers over the steps of a run, as SVG elements to stand in a page.

#include <string>
#include <utility>
#include <vector>

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

}  // namespace fq::html
