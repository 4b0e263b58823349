#include "fakequant/report/detail/runs/point_labels.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

namespace fq::html {
namespace {

constexpr double kSamePlace = 3, kPointRadius = 5;  // of points on each other, and of a point with its edge
constexpr double kBeside = 7;                       // from a point to its name
constexpr std::size_t kMostNames = 3, kMostLetters = 28, kMostLabels = 60;
constexpr int kMostSteps = 24;  // of half a line, that a label may be away

struct Box {
  double left, right, top, bottom;
  [[nodiscard]] bool meets(const Box& b) const {
    return left < b.right && b.left < right && top < b.bottom && b.top < bottom;
  }
};

bool begins_letter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

std::size_t letters_of(const std::string& text) {
  return std::size_t(std::ranges::count_if(text, begins_letter));
}

std::string shortened(const std::string& name) {
  if (letters_of(name) <= kMostLetters) return name;
  std::size_t at = name.size();
  for (std::size_t kept = 0; kept < kMostLetters - 1;)
    if (begins_letter(name[--at])) ++kept;
  return "…" + name.substr(at);
}

/// Letters of three bytes and more may be as wide as they are high.
double width_of(const std::string& text, double font_size) {
  const auto wide =
      std::ranges::count_if(text, [](char byte) { return static_cast<unsigned char>(byte) >= 0xE0U; });
  return font_size * (0.62 * double(letters_of(text)) + 0.4 * double(wide));
}

struct Group {
  double x, y;
  std::vector<std::string> names;
  [[nodiscard]] std::string text() const {
    const bool all = names.size() <= kMostNames;
    const std::vector<std::string> shown(names.begin(), all ? names.end() : names.begin() + kMostNames - 1);
    const auto said = fmt::format("{}", fmt::join(shown, ", "));
    return all ? said : fmt::format("{} and {} more", said, names.size() - shown.size());
  }
};

std::vector<Group> groups_of(const std::vector<NamedPoint>& points) {
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

/// Places for one name, the nearest first.
std::vector<PointLabel> places(const Group& group, double font_size) {
  std::vector<PointLabel> out;
  const std::string text = group.text();
  const auto add = [&](double up, bool away) {
    for (const bool ends_here : {false, true})
      out.push_back({group.x + (ends_here ? -kBeside : kBeside), group.y - up, ends_here, text, group.x,
                     group.y, away});
  };
  add(kPointRadius, false);
  add(-0.35 * font_size, false);
  add(-kPointRadius - 0.7 * font_size, false);
  for (int step = 1; step <= kMostSteps; ++step)
    for (const double way : {1.0, -1.0}) add(kPointRadius + way * step * 0.65 * font_size, true);
  return out;
}

Box box_of(const PointLabel& label, double font_size) {
  const double width = width_of(label.text, font_size);
  const double left = label.ends_here ? label.x - width : label.x;
  return {left, left + width, label.y - font_size, label.y + 0.3 * font_size};
}

}  // namespace

std::vector<PointLabel> place_labels(const std::vector<NamedPoint>& points, PlotArea area, double font_size) {
  std::vector<Box> taken;
  for (const auto& p : points)
    taken.push_back({p.x - kPointRadius, p.x + kPointRadius, p.y - kPointRadius, p.y + kPointRadius});
  std::vector<PointLabel> out;
  const auto groups = groups_of(points);
  for (std::size_t i = 0; i < std::min(groups.size(), kMostLabels); ++i)
    for (const auto& place : places(groups[i], font_size)) {
      const Box box = box_of(place, font_size);
      const bool inside = box.left >= area.left && box.right <= area.right && box.top >= area.top &&
                          box.bottom <= area.bottom;
      if (!inside || std::ranges::any_of(taken, [&](const Box& other) { return box.meets(other); })) continue;
      taken.push_back(box);
      out.push_back(place);
      break;
    }
  return out;
}

}  // namespace fq::html
