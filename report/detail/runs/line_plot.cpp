#include "fakequant/report/detail/runs/line_plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "fakequant/report/detail/histogram_plot.h"
#include "fakequant/report/detail/text.h"

namespace fq::html {
namespace {

constexpr PlotArea kFigure{.left = 58, .right = 628, .top = 10, .bottom = 200};
constexpr PlotArea kSpark{.left = 1, .right = 119, .top = 2, .bottom = 22};
constexpr double kManyTimes = 50;    // from which on a scale is logarithmic
constexpr std::size_t kDotted = 60;  // points up to which each is marked
constexpr int kLineColours = 6;

/// Numbers from the foot to the top of an area.
struct Scale {
  PlotArea area;
  double low = 0, high = 1;
  bool logarithmic = false;

  [[nodiscard]] double at(double value) const {
    const double share =
        logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    return area.bottom - (area.bottom - area.top) * share;
  }
};

std::vector<double> numbers_of(const std::vector<Curve>& curves) {
  std::vector<double> out;
  for (const auto& curve : curves)
    for (const auto& [step, value] : curve.points)
      if (std::isfinite(value)) out.push_back(value);
  return out;
}

Scale tight_scale(const std::vector<double>& numbers, PlotArea area) {
  const auto [low, high] = std::ranges::minmax(numbers);
  const double room = low == high ? std::max(std::fabs(high), 1e-9) * 0.5 : 0;
  return {area, low - room, high + room};
}

/// Its ends are round numbers.
Scale round_scale(const std::vector<double>& numbers, PlotArea area, Span span) {
  Scale out = tight_scale(numbers, area);
  if (span == Span::logarithmic && out.low > 0 && out.high > kManyTimes * out.low) {
    out.logarithmic = true;
    return out;
  }
  if (out.low > 0 && out.low < 0.5 * out.high) out.low = 0;
  const double step = round_step(out.high - out.low);
  out.low = std::floor(out.low / step + 1e-9) * step;
  out.high = std::ceil(out.high / step - 1e-9) * step;
  return out;
}

std::vector<double> marks_of(const Scale& y) {
  std::vector<double> out;
  if (y.logarithmic) {
    for (double power = std::pow(10.0, std::ceil(std::log10(y.low))); power <= y.high * (1 + 1e-9);
         power *= 10)
      out.push_back(power);
    return out;
  }
  const double step = round_step(y.high - y.low);
  for (int i = 0; y.low + i * step <= y.high + step * 1e-6; ++i) {
    const double mark = y.low + i * step;
    out.push_back(std::fabs(mark) < step * 1e-6 ? 0 : mark);
  }
  return out;
}

std::string grid_of(const Scale& y) {
  std::string out;
  for (const double mark : marks_of(y))
    out += fmt::format(
        "<line class=grid x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text class=count x=\"{}\" "
        "y=\"{:.1f}\">{}</text>",
        y.area.left, y.area.right, y.at(mark), y.at(mark), y.area.left - 8, y.at(mark) + 3.5, number(mark));
  return out;
}

std::string path_of(const Curve& curve, const Axis& x, const Scale& y) {
  std::string out;
  for (const auto& [step, value] : curve.points)
    if (std::isfinite(value))
      out += fmt::format("{}{:.1f} {:.1f}", out.empty() ? "M" : "L", x.at(step), y.at(value));
  return out;
}

std::string drawn(const Curve& curve, std::size_t place, const Axis& x, const Scale& y) {
  std::string out = fmt::format("<g class=\"f-{}\"><path class=curve d=\"{}\"/>", place % kLineColours,
                                path_of(curve, x, y));
  if (curve.points.size() <= kDotted)
    for (const auto& [step, value] : curve.points)
      if (std::isfinite(value))
        out += fmt::format(
            "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=2.5><title>{}: {} at step {:.0f}</title></circle>",
            x.at(step), y.at(value), escaped(curve.name), number(value), step);
  return out + "</g>";
}

}  // namespace

std::string line_plot(const std::string& title, const std::vector<Curve>& curves, double last_step,
                      Span span) {
  const auto numbers = numbers_of(curves);
  if (numbers.empty()) return {};
  const Axis x{kFigure, std::max(last_step, 1.0)};
  const Scale y = round_scale(numbers, kFigure, span);
  std::string out = fmt::format("<section class=card><h3>{}</h3><div class=legend>", escaped(title));
  for (std::size_t i = 0; i < curves.size(); ++i)
    if (!curves[i].points.empty())
      out += fmt::format("<span class=\"f-{}\">{}</span>", i % kLineColours, escaped(curves[i].name));
  out += fmt::format("</div><svg class=histogram viewBox=\"0 0 640 236\" role=img aria-label=\"{} by step\">",
                     escaped(title)) +
         grid_of(y) + x.ticks();
  for (std::size_t i = 0; i < curves.size(); ++i) out += drawn(curves[i], i, x, y);
  return out + fmt::format("<text class=tick x=\"{}\" y=\"{}\">step{}</text></svg></section>\n",
                           (kFigure.left + kFigure.right) / 2, kFigure.bottom + 32,
                           y.logarithmic ? ", logarithmic scale" : "");
}

std::string sparkline(const Curve& curve, double last_step) {
  const auto numbers = numbers_of({curve});
  if (numbers.empty()) return {};
  const Axis x{kSpark, std::max(last_step, 1.0)};
  return fmt::format(
      "<svg class=spark viewBox=\"0 0 120 24\" aria-hidden=true><path class=curve d=\"{}\"/></svg>",
      path_of(curve, x, tight_scale(numbers, kSpark)));
}

}  // namespace fq::html
