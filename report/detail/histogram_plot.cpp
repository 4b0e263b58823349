#include "fakequant/report/detail/histogram_plot.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fakequant/report/detail/html.h"

namespace fq::html {
namespace {

constexpr double kLeast = 0.5;  // count at the bottom of the scale

std::string power_label(int power) {
  // Large counts are powers of ten: "10" and a raised exponent.
  if (power <= 3) return grouped(static_cast<std::int64_t>(std::lround(std::pow(10.0, power))));
  return fmt::format("10<tspan dy=-4 class=power>{}</tspan>", power);
}

}  // namespace

double round_step(double end) {
  const double most = end / 4, power = std::pow(10.0, std::floor(std::log10(most)));
  for (const double factor : {5.0, 2.0})
    if (factor * power <= most) return factor * power;
  return power;
}

std::string Axis::ticks() const {
  const double step = round_step(end);
  std::string out = fmt::format("<line class=axis x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>", area.left,
                                area.right, area.bottom, area.bottom);
  // The index is an integer and the bound has a tolerance, so that rounding does not lose the last mark.
  for (int i = 0; i * step <= end * (1 + 1e-9); ++i)
    out += fmt::format(
        "<line class=axis x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/><text class=tick "
        "x=\"{0:.1f}\" "
        "y=\"{3}\">{4:.6g}</text>",
        at(i * step), area.bottom, area.bottom + 4, area.bottom + 15, i * step);
  return out;
}

std::vector<double> plot_columns(const Histogram& h, double end, int columns) {
  std::vector<double> out(static_cast<std::size_t>(columns));
  const double scale = columns / end;
  for (std::size_t k = 0; k < h.counts.size(); ++k) {
    if (h.counts[k] == 0) continue;
    const double from = static_cast<double>(h.edges[k]) * scale,
                 to = static_cast<double>(h.edges[k + 1]) * scale;
    // Counts are spread evenly over the bin. A column may have a fraction of a count.
    const double density = static_cast<double>(h.counts[k]) / (to - from);
    const double last = std::min<double>(columns, to);
    // Invariant: the part of the bin left of `at` is distributed. Each step ends at the next column or at the
    // bin's end.
    for (double at = from; at < last;) {
      const double next = std::min(std::floor(at) + 1, last);
      out[static_cast<std::size_t>(at)] += density * (next - at);
      at = next;
    }
  }
  return out;
}

LogScale::LogScale(const std::vector<double>& columns, PlotArea area) : area_(area) {
  const double most = columns.empty() ? 1 : *std::ranges::max_element(columns);
  // The scale is 4 % longer than the largest column, so that its outline does not touch the upper edge.
  decades_ = std::max(1.0, std::log10(most / kLeast) * 1.04);
}

double LogScale::at(double count) const {
  const double share = count > kLeast ? std::log10(count / kLeast) / decades_ : 0;
  return area_.bottom - (area_.bottom - area_.top) * std::min(share, 1.0);
}

std::string LogScale::grid() const {
  std::string out;
  // The scale starts at half a count, so log10(kLeast) is added to get powers of ten of a count.
  const int highest = static_cast<int>(std::floor(decades_ + std::log10(kLeast))), step = highest > 5 ? 2 : 1;
  for (int power = 0; power <= highest; power += step) {
    const double y = at(std::pow(10.0, power));
    out += fmt::format(
        "<line class=grid x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/><text class=count x=\"{}\" "
        "y=\"{:.1f}\">{}</text>",
        area_.left, area_.right, y, y, area_.left - 8, y + 3.5, power_label(power));
  }
  return out;
}

std::string LogScale::outline(const std::vector<double>& columns, std::size_t begin, std::size_t end) const {
  const auto filled = [](double count) { return count > kLeast; };
  const auto from = columns.begin() + static_cast<std::ptrdiff_t>(begin);
  const auto to = columns.begin() + static_cast<std::ptrdiff_t>(end);
  if (std::none_of(from, to, filled)) return {};
  const double width = (area_.right - area_.left) / static_cast<double>(columns.size());
  const auto x = [&](std::size_t i) { return area_.left + width * static_cast<double>(i); };
  std::string out = fmt::format("M{:.4g} {}", x(begin), area_.bottom);
  double before = area_.bottom;
  for (std::size_t i = begin; i < end; ++i) {
    const double y = at(columns[i]);
    // Columns of the same height share one segment, which keeps pages of many quantizers small.
    if (std::fabs(y - before) < 0.05) continue;
    out += fmt::format("H{:.4g}V{:.4g}", x(i), y);
    before = y;
  }
  return out + fmt::format("H{:.4g}V{}Z", x(end), area_.bottom);
}

namespace {

constexpr double kTop = 8, kTickGap = 20, kAxisGap = 32, kRow = 17, kFoot = 4;
constexpr PlotArea kPlot{.left = 68, .right = 630, .top = kTop, .bottom = 150};

bool known(const RangeReport& range) { return range.highest.has_value(); }

/// Returns the end of the axis: the largest value of the figure.
double axis_end(const QuantizerReport& q) {
  double largest = std::max(q.largest.value_or(0), q.in_force.highest.value_or(0));
  for (const auto& range : q.methods) largest = std::max(largest, range.highest.value_or(0));
  return largest > 0 ? largest : 1;
}

std::string amax_text(const RangeReport& range) {
  if (!known(range)) return std::string(unknown);
  if (*range.lowest == *range.highest) return number(range.highest);
  return fmt::format("{} to {}", number(range.lowest), number(range.highest));
}

std::string range_title(std::string_view label, const RangeReport& range) {
  return fmt::format("<title>{}: amax {}, clipped {}, SQNR {}</title>", label, amax_text(range),
                     percent(range.clipped), decibels(range.sqnr_db));
}

/// Returns the row of one range: its name, and a mark or bar at its amax.
std::string row(const RangeReport& range, std::string_view label, std::string_view kind, double y,
                const Axis& x) {
  std::string out = fmt::format(
      "<g class=\"m-{}\">{}<text class=row x=\"{}\" y=\"{:.1f}\">{}</text>"
      "<line class=rail x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>",
      kind, range_title(label, range), kPlot.left - 8, y + 3.5, label, kPlot.left, kPlot.right, y, y);
  if (!known(range)) return out + "</g>";
  const double low = x.at(*range.lowest), high = x.at(*range.highest);
  if (high - low > 1)
    out += fmt::format("<rect class=bar x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=6 rx=3 />", low,
                       y - 3, high - low);
  else
    out += fmt::format(
        "<path class=mark d=\"M{0:.1f} {1}V{2}M{0:.1f} {3}V{4:.1f}\"/><circle cx=\"{0:.1f}\" cy=\"{4:.1f}\" "
        "r=4 />",
        high, kPlot.top, kPlot.bottom, kPlot.bottom + kTickGap, y);
  return out + "</g>";
}

/// Returns a band from the lowest to the highest amax of the channels.
std::string band(const RangeReport& range, const Axis& x) {
  if (!known(range) || *range.lowest == *range.highest) return {};
  const double low = x.at(*range.lowest);
  return fmt::format("<rect class=band x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\"/>", low,
                     kPlot.top, x.at(*range.highest) - low, kPlot.bottom - kPlot.top);
}

// Draws the counts within the range in force and the clipped counts beyond it as two paths of different
// colour.
std::string bars(const QuantizerReport& q, const Axis& x) {
  const auto columns = plot_columns(q.histogram, x.end, kPlot.columns());
  const LogScale scale(columns, kPlot);
  const double limit = q.in_force.highest.value_or(x.end);
  const auto beyond =
      static_cast<std::size_t>(std::ceil(limit / x.end * static_cast<double>(columns.size())));
  const auto split = std::min(beyond, columns.size());
  return scale.grid() + fmt::format("<path class=counts d=\"{}\"/><path class=\"counts beyond\" d=\"{}\"/>",
                                    scale.outline(columns, 0, split),
                                    scale.outline(columns, split, columns.size()));
}

}  // namespace

// Below the plot, the range in force has the first row. It is drawn last, on top of the marks of the methods.
std::string histogram_svg(const QuantizerReport& q) {
  const Axis x{kPlot, axis_end(q)};
  const double rows = static_cast<double>(q.methods.size() + 1), first = kPlot.bottom + kAxisGap;
  std::string out =
      fmt::format("<svg class=histogram viewBox=\"0 0 640 {:.0f}\" role=img aria-label=\"Histogram of {}\">",
                  first + kRow * (rows - 1) + kRow / 2 + kFoot, escaped(q.name));
  if (q.histogram.counts.empty())
    out += fmt::format("<text class=none x=\"{}\" y=\"{}\">no histogram</text>",
                       (kPlot.left + kPlot.right) / 2, (kPlot.top + kPlot.bottom) / 2);
  else
    out += bars(q, x);
  out += band(q.in_force, x) + x.ticks();
  double y = first;
  for (const auto& range : q.methods) out += row(range, range.method, range.method, y += kRow, x);
  return out + row(q.in_force, "in force", "force", first, x) + "</svg>";
}

std::string histogram_thumbnail(const QuantizerReport& q) {
  constexpr PlotArea small{.left = 0, .right = 96, .top = 1, .bottom = 23};
  if (q.histogram.counts.empty()) return {};
  const Axis x{small, axis_end(q)};
  const auto columns = plot_columns(q.histogram, x.end, small.columns());
  std::string out =
      fmt::format("<svg class=thumbnail viewBox=\"0 0 96 24\" aria-hidden=true><path class=counts d=\"{}\"/>",
                  LogScale(columns, small).outline(columns, 0, columns.size()));
  if (known(q.in_force))
    out += fmt::format("<g class=m-force><line class=mark x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=0 y2=24 /></g>",
                       x.at(*q.in_force.highest));
  return out + "</svg>";
}

}  // namespace fq::html
