#include "fakequant/report/detail/histogram_plot.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "fakequant/report/detail/text.h"

namespace fq::html {
namespace {

constexpr double kLeast = 0.5;  // count at the foot of the scale

std::string power_label(int power) {
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
    const double density = static_cast<double>(h.counts[k]) / (to - from);
    const double last = std::min<double>(columns, to);
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
  decades_ = std::max(1.0, std::log10(most / kLeast) * 1.04);
}

double LogScale::at(double count) const {
  const double share = count > kLeast ? std::log10(count / kLeast) / decades_ : 0;
  return area_.bottom - (area_.bottom - area_.top) * std::min(share, 1.0);
}

std::string LogScale::grid() const {
  std::string out;
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
    if (std::fabs(y - before) < 0.05) continue;
    out += fmt::format("H{:.4g}V{:.4g}", x(i), y);
    before = y;
  }
  return out + fmt::format("H{:.4g}V{}Z", x(end), area_.bottom);
}

}  // namespace fq::html
