#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/report/detail/runs/line_plot.h"

namespace fq::html {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::StartsWith;

constexpr PlotArea kArea{.left = 58, .right = 636, .top = 2, .bottom = 218};

std::vector<std::string> texts(const std::vector<PointLabel>& labels) {
  std::vector<std::string> out;
  for (const auto& label : labels) out.push_back(label.text);
  return out;
}

/// Plain letters are at most 0.62 of their size wide.
bool meet(const PointLabel& a, const PointLabel& b, double size) {
  const auto left = [&](const PointLabel& l) {
    return l.ends_here ? l.x - 0.62 * size * double(l.text.size()) : l.x;
  };
  const auto right = [&](const PointLabel& l) {
    return l.ends_here ? l.x : l.x + 0.62 * size * double(l.text.size());
  };
  return left(a) < right(b) && left(b) < right(a) && std::abs(a.y - b.y) < size;
}

TEST(PointLabels, AreCentredAboveAnIsolatedPoint) {
  const auto labels = place_labels({{100, 100, "a"}}, kArea, 11);
  ASSERT_EQ(labels.size(), 1U);
  EXPECT_EQ(labels[0].x, 107);
  EXPECT_EQ(labels[0].y, 95);
  EXPECT_FALSE(labels[0].ends_here || labels[0].away);
}

TEST(PointLabels, CoincidentPointsShareOneLabel) {
  EXPECT_THAT(texts(place_labels({{100, 100, "a"}, {300, 50, "c"}, {100.5, 100, "b"}}, kArea, 11)),
              ElementsAre("c", "a, b"));
  std::vector<NamedPoint> many;
  for (int i = 0; i < 9; ++i) many.push_back({100, 100, std::string(1, char('a' + i))});
  EXPECT_THAT(texts(place_labels(many, kArea, 11)), ElementsAre("a, b and 7 more"));
}

TEST(PointLabels, TruncateLongNamesAtTheStart) {
  std::string name;
  for (int i = 0; i < 40; ++i) name += "ä";
  const auto text = texts(place_labels({{100, 100, name + "/end"}}, kArea, 11)).at(0);
  EXPECT_THAT(text, StartsWith("…ä"));
  EXPECT_THAT(text, EndsWith("ä/end"));
}

TEST(PointLabels, DoNotOverlapEachOtherOrTheEdges) {
  for (const double size : {11.0, 18.0}) {
    std::vector<NamedPoint> points;
    for (int i = 0; i < 200; ++i)
      points.push_back(
          {58 + double((i * 37) % 543), 14 + double((i * 53) % 200), "sweep/" + std::to_string(i)});
    for (int i = 0; i < 8; ++i) points.push_back({560 + 4.0 * i, 120 + 1.5 * i, "near/" + std::to_string(i)});
    const auto labels = place_labels(points, kArea, size);
    EXPECT_GE(labels.size(), 8U);
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const double width = 0.62 * size * double(labels[i].text.size());
      EXPECT_GE(labels[i].ends_here ? labels[i].x - width : labels[i].x, kArea.left);
      EXPECT_LE(labels[i].ends_here ? labels[i].x : labels[i].x + width, kArea.right);
      for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(meet(labels[i], labels[j], size)) << i << " " << j;
    }
  }
}

TEST(PointLabels, AFewClosePointsAllHaveLabels) {
  std::vector<NamedPoint> points;
  for (int i = 0; i < 6; ++i)
    points.push_back({540 + 5.0 * i, 100 + 2.0 * i, "runs/int8_" + std::to_string(i)});
  for (const double size : {11.0, 18.0}) EXPECT_EQ(place_labels(points, kArea, size).size(), 6U);
}

}  // namespace
}  // namespace fq::html
