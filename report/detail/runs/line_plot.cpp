#include "fakequant/report/detail/runs/line_plot.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fakequant/report/detail/histogram_plot.h"
#include "fakequant/report/detail/html.h"

namespace fq::html {
namespace {

// Areas in units of the figure (viewBox): a plot with room for axis labels, and a figure of a table row.
constexpr PlotArea kFigure{.left = 58, .right = 628, .top = 10, .bottom = 200};
constexpr PlotArea kSpark{.left = 1, .right = 119, .top = 2, .bottom = 22};
constexpr double kManyTimes = 50;    // smallest ratio for a logarithmic scale
constexpr std::size_t kDotted = 60;  // largest number of points with marks
constexpr int kLineColours = 6;

std::vector<double> finite_values(const std::vector<Curve>& curves) {
  std::vector<double> out;
  for (const auto& curve : curves)
    for (const auto& [step, value] : curve.points)
      if (std::isfinite(value)) out.push_back(value);
  return out;
}

Scale tight_scale(const std::vector<double>& numbers, PlotArea area) {
  const auto [low, high] = std::ranges::minmax(numbers);
  // A constant curve has no extent: half of its value above and below places it in the middle.
  const double room = low == high ? std::max(std::fabs(high), 1e-9) * 0.5 : 0;
  return {area, low - room, high + room};
}

/// Returns a scale whose ends are round numbers.
Scale round_scale(const std::vector<double>& numbers, PlotArea area, Span span) {
  Scale out = tight_scale(numbers, area);
  if (span == Span::logarithmic && out.low > 0 && out.high > kManyTimes * out.low) {
    out.logarithmic = true;
    return out;
  }
  // An axis that would start below half of the largest value starts at 0.
  if (out.low > 0 && out.low < 0.5 * out.high) out.low = 0;
  const double step = round_step(out.high - out.low);
  // 1e-9 keeps an end that is a multiple of the step up to rounding.
  out.low = std::floor(out.low / step + 1e-9) * step;
  out.high = std::ceil(out.high / step - 1e-9) * step;
  return out;
}

std::vector<double> tick_values(const Scale& y) {
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
    // Sums of steps may miss zero by rounding, and the label would be 1e-17.
    out.push_back(std::fabs(mark) < step * 1e-6 ? 0 : mark);
  }
  return out;
}

std::string curve_path(const Curve& curve, const Axis& x, const Scale& y) {
  std::string out;
  for (const auto& [step, value] : curve.points)
    if (std::isfinite(value))
      out += fmt::format("{}{:.1f} {:.1f}", out.empty() ? "M" : "L", x.at(step), y.at(value));
  return out;
}

std::string drawn(const Curve& curve, std::size_t index, const Axis& x, const Scale& y) {
  std::string out = fmt::format("<g class=\"f-{}\"><path class=curve d=\"{}\"/>", index % kLineColours,
                                curve_path(curve, x, y));
  // Points of a long curve would hide the line.
  if (curve.points.size() <= kDotted)
    for (const auto& [step, value] : curve.points)
      if (std::isfinite(value))
        out += fmt::format(
            "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=2.5><title>{}: {} at step {:.0f}</title></circle>",
            x.at(step), y.at(value), escaped(curve.name), number(value), step);
  return out + "</g>";
}

}  // namespace

double Scale::at(double value) const {
  const double share =
      logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  return area.bottom - (area.bottom - area.top) * share;
}

std::string Scale::grid() const {
  std::string out;
  for (const double mark : tick_values(*this))
    out += fmt::format(
        "<line class=grid x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text class=count x=\"{}\" "
        "y=\"{:.1f}\">{}</text>",
        area.left, area.right, at(mark), at(mark), area.left - 8, at(mark) + 3.5, number(mark));
  return out;
}

std::string line_plot(const std::string& title, const std::vector<Curve>& curves, double last_step,
                      Span span) {
  const auto numbers = finite_values(curves);
  if (numbers.empty()) return {};
  const Axis x{kFigure, std::max(last_step, 1.0)};
  const Scale y = round_scale(numbers, kFigure, span);
  std::string out = fmt::format("<section class=card><h3>{}</h3><div class=legend>", escaped(title));
  for (std::size_t i = 0; i < curves.size(); ++i)
    if (!curves[i].points.empty())
      out += fmt::format("<span class=\"f-{}\">{}</span>", i % kLineColours, escaped(curves[i].name));
  out += fmt::format("</div><svg class=histogram viewBox=\"0 0 640 236\" role=img aria-label=\"{} by step\">",
                     escaped(title)) +
         y.grid() + x.ticks();
  for (std::size_t i = 0; i < curves.size(); ++i) out += drawn(curves[i], i, x, y);
  return out + fmt::format("<text class=tick x=\"{}\" y=\"{}\">step{}</text></svg></section>\n",
                           (kFigure.left + kFigure.right) / 2, kFigure.bottom + 32,
                           y.logarithmic ? ", logarithmic scale" : "");
}

std::string sparkline(const Curve& curve, double last_step) {
  const auto numbers = finite_values({curve});
  if (numbers.empty()) return {};
  const Axis x{kSpark, std::max(last_step, 1.0)};
  return fmt::format(
      "<svg class=spark viewBox=\"0 0 120 24\" aria-hidden=true><path class=curve d=\"{}\"/></svg>",
      curve_path(curve, x, tight_scale(numbers, kSpark)));
}

namespace {

constexpr double kSamePlace = 3, kPointRadius = 5;  // distance of joined points; radius with edge
constexpr double kBeside = 7;                       // from a point to its label
constexpr std::size_t kMostNames = 3, kMostLetters = 28, kMostLabels = 60;
constexpr int kMostSteps = 24;  // largest distance of a label, in half lines

struct Box {
  double left, right, top, bottom;
  [[nodiscard]] bool meets(const Box& b) const {
    return left < b.right && b.left < right && top < b.bottom && b.top < bottom;
  }
};

// Bytes 10xxxxxx continue a character in UTF-8.
bool begins_letter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

std::size_t count_letters(const std::string& text) {
  return std::size_t(std::ranges::count_if(text, begins_letter));
}

// Names are paths of run folders, whose ends differ, so the beginning is cut, before a whole character.
std::string shortened(const std::string& name) {
  if (count_letters(name) <= kMostLetters) return name;
  std::size_t at = name.size();
  for (std::size_t letters = 0; letters < kMostLetters - 1;)
    if (begins_letter(name[--at])) ++letters;
  return "…" + name.substr(at);
}

/// Returns the estimated width. The width of a character of three or more UTF-8 bytes may equal its height.
double text_width(const std::string& text, double font_size) {
  const auto wide =
      std::ranges::count_if(text, [](char byte) { return static_cast<unsigned char>(byte) >= 0xE0U; });
  return font_size * (0.62 * double(count_letters(text)) + 0.4 * double(wide));
}

struct Group {
  double x, y;
  std::vector<std::string> names;
  [[nodiscard]] std::string text() const {
    const bool all = names.size() <= kMostNames;
    const std::vector<std::string> shown(names.begin(), all ? names.end() : names.begin() + kMostNames - 1);
    const auto listed = fmt::format("{}", fmt::join(shown, ", "));
    return all ? listed : fmt::format("{} and {} more", listed, names.size() - shown.size());
  }
};

// Merges points that are drawn on top of each other. The highest group comes first, because y points down.
std::vector<Group> group_points(const std::vector<NamedPoint>& points) {
  std::vector<Group> out;
  for (const auto& point : points) {
    const auto same = std::ranges::find_if(
        out, [&](const Group& g) { return std::hypot(g.x - point.x, g.y - point.y) < kSamePlace; });
    if (same != out.end())
      same->names.push_back(shortened(point.name));
    else
      out.push_back({point.x, point.y, {shortened(point.name)}});
  }
  std::ranges::stable_sort(out, {}, &Group::y);
  return out;
}

/// Returns candidate positions of a label, the nearest first.
std::vector<PointLabel> candidate_labels(const Group& group, double font_size) {
  std::vector<PointLabel> out;
  const std::string text = group.text();
  const auto add = [&](double up, bool away) {
    for (const bool ends_here : {false, true})
      out.push_back({group.x + (ends_here ? -kBeside : kBeside), group.y - up, ends_here, text, group.x,
                     group.y, away});
  };
  // Above, level with and below the point, each on both sides. Then ever farther, with a line to the point.
  add(kPointRadius, false);
  add(-0.35 * font_size, false);
  add(-kPointRadius - 0.7 * font_size, false);
  for (int step = 1; step <= kMostSteps; ++step)
    for (const double way : {1.0, -1.0}) add(kPointRadius + way * step * 0.65 * font_size, true);
  return out;
}

Box label_box(const PointLabel& label, double font_size) {
  const double width = text_width(label.text, font_size);
  const double left = label.ends_here ? label.x - width : label.x;
  return {left, left + width, label.y - font_size, label.y + 0.3 * font_size};
}

}  // namespace

std::vector<PointLabel> place_labels(const std::vector<NamedPoint>& points, PlotArea area, double font_size) {
  std::vector<Box> occupied;
  for (const auto& p : points)
    occupied.push_back({p.x - kPointRadius, p.x + kPointRadius, p.y - kPointRadius, p.y + kPointRadius});
  std::vector<PointLabel> out;
  const auto groups = group_points(points);
  // Greedy: the first candidate that is inside the area and meets neither points nor earlier labels. Cost is
  // quadratic in the number of labels, which is limited.
  for (std::size_t i = 0; i < std::min(groups.size(), kMostLabels); ++i)
    for (const auto& label : candidate_labels(groups[i], font_size)) {
      const Box box = label_box(label, font_size);
      const bool inside = box.left >= area.left && box.right <= area.right && box.top >= area.top &&
                          box.bottom <= area.bottom;
      if (!inside || std::ranges::any_of(occupied, [&](const Box& other) { return box.meets(other); }))
        continue;
      occupied.push_back(box);
      out.push_back(label);
      break;
    }
  return out;
}

}  // namespace fq::html
