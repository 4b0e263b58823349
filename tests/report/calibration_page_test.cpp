#include "fakequant/report/calibration_page.h"

#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "export/temporary.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/report/detail/histogram_plot.h"
#include "fakequant/report/detail/html.h"

namespace fq::calibration_page_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

QuantizerReport report(const std::string& name) {
  QuantizerReport q{.name = name, .format = "int8", .granularity = "per tensor", .count = 7};
  q.minimum = -1.5;
  q.largest = 2;
  q.histogram = {{4, 2, 0, 1}, {0, 0.5f, 1, 1.5f, 2}};
  q.in_force = {"max", 2, 2, 0, INFINITY};
  for (const auto& method : report_methods()) q.methods.push_back({method, 1.5, 1.5, 0.25, 40});
  q.methods.back() = {.method = "octav", .reason = "it is <not> read"};
  return q;
}

TEST(CalibrationPage, EscapesText) {
  const std::string hostile = "</title><script>alert('1')</script>\"&\x01";
  const std::string page = calibration_html(
      {.title = hostile, .facts = {{hostile, hostile}}, .quantizers = {report(hostile), report("b")}});
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("alert('")));
  EXPECT_THAT(
      page, HasSubstr("&#60;/title&#62;&#60;script&#62;alert(&#39;1&#39;)&#60;/script&#62;&#34;&#38;\ufffd"));
  EXPECT_THAT(page, HasSubstr("it is &#60;not&#62; read"));
  EXPECT_EQ(html::escaped("Größe\n"), "Größe\n");
}

TEST(CalibrationPage, HasNoExternalReferences) {
  const std::string page = calibration_html({.title = "t", .quantizers = {report("a")}});
  for (const char* reference : {"http:", "https:", "//", "src=", "url(", "@import", "<link", "fetch("})
    EXPECT_THAT(page, Not(HasSubstr(reference)));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
}

TEST(CalibrationPage, HasALineACardAndAnAnchorPerQuantizer) {
  const std::string page = calibration_html({.title = "t", .quantizers = {report("a.x"), report("b.x")}});
  for (const char* part :
       {"href=\"#q1\">a.x", "href=\"#q2\">b.x", "id=q1", "id=q2", "data-key=\"sqnr\"", "∞ dB", "25 %"})
    EXPECT_THAT(page, HasSubstr(part));
  EXPECT_THAT(calibration_html({.title = "t", .quantizers = {}}), HasSubstr("<tbody>\n</tbody>"));
}

TEST(CalibrationPage, ShowsAPlan) {
  const std::string hostile = "<img>";
  QuantizationPlan plan;
  plan.formats = {"w4a8", hostile};
  plan.measured = {0.25, NAN, 0.125};
  plan.effective_bits = 4.5;
  const FormatScore low{"w4a8", 4, {0.5, -0.0125, 0.1}}, high{hostile, 8, {-0.25, 0, 0}};
  plan.layers = {{"conv1<b>", "conv2d", 3000, 0, "w4a8", {low, high}},
                 {"add", "add", 0, 1, hostile, {low, high}}};
  const std::string page = calibration_html({.title = "t", .quantizers = {report("a")}, .plan = plan});
  for (const char* part : {"Sensitivity plan", "conv1&#60;b&#62;", "&#60;img&#62;: 1 layer", "−1.25 pp",
                           "+0.25", "4.5", "data-key=\"plan-w4a8\"", "data-v=\"-0.25\"", "3,000 weights"})
    EXPECT_THAT(page, HasSubstr(part)) << part;
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("nan")));
  EXPECT_THAT(calibration_html({.title = "t", .quantizers = {}}), Not(HasSubstr("Sensitivity plan")));
}

TEST(CalibrationPage, IsWrittenAtomically) {
  const std::string path = test::temporary("page.html");
  const CalibrationPage page{.title = "t", .quantizers = {report("a")}};
  save_calibration_html(path, page);
  EXPECT_EQ(read_file(path), calibration_html(page));
  EXPECT_THROW(save_calibration_html(test::temporary("none/page.html"), page), FileError);
}

TEST(HistogramPlot, DistributesBinCountsOverColumns) {
  const Histogram h{{6, 3, 0, 8}, {0, 1, 2, 3, 4}};
  EXPECT_EQ(html::plot_columns(h, 4, 2), (std::vector<double>{9, 8}));
  EXPECT_EQ(html::plot_columns(h, 4, 8), (std::vector<double>{3, 3, 1.5, 1.5, 0, 0, 4, 4}));
  const auto odd = html::plot_columns(h, 5, 7);
  EXPECT_NEAR(std::accumulate(odd.begin(), odd.end(), 0.0), 17, 1e-12);
  EXPECT_EQ(html::plot_columns(h, 2, 2), (std::vector<double>{6, 3}));  // bins after the end are omitted
  EXPECT_EQ(html::plot_columns({}, 1, 3), (std::vector<double>{0, 0, 0}));
}

TEST(HistogramPlot, ScaleIsLogarithmic) {
  const html::PlotArea area{.left = 0, .right = 100, .top = 0, .bottom = 90};
  const html::LogScale scale({1, 1000}, area);
  EXPECT_EQ(scale.at(0), 90);
  EXPECT_EQ(scale.at(0.5), 90);
  EXPECT_GT(scale.at(1000), 0);
  EXPECT_NEAR(scale.at(10) - scale.at(100), scale.at(100) - scale.at(1000), 1e-9);
  EXPECT_EQ(scale.outline({0, 0.1}, 0, 2), "");
  EXPECT_THAT((html::Axis{area, 1}.ticks()), HasSubstr(">0.2<"));
  EXPECT_EQ((html::Axis{area, 4}.at(1)), 25);
}

TEST(HistogramPlot, DrawsEveryFiniteReport) {
  for (const double scale : {1e-38, 1e-6, 1.0, 1e30}) {
    QuantizerReport q = report("a");
    for (auto& edge : q.histogram.edges) edge *= static_cast<float>(scale);
    q.largest = 2 * scale;
    q.in_force = {"max", 2 * scale, 2 * scale, {}, {}};
    for (auto& range : q.methods)
      if (range.highest) range.lowest = range.highest = scale;
    const std::string svg = html::histogram_svg(q) + html::histogram_thumbnail(q);
    EXPECT_THAT(svg, Not(HasSubstr("nan"))) << scale;
    EXPECT_THAT(svg, Not(HasSubstr("inf\""))) << scale;
    EXPECT_LT(svg.size(), 20000U);
  }
  QuantizerReport empty{.name = "a"};
  EXPECT_THAT(html::histogram_svg(empty), HasSubstr("no histogram"));
  EXPECT_EQ(html::histogram_thumbnail(empty), "");
}

TEST(HtmlText, Numbers) {
  EXPECT_EQ(html::number(-0.012345), "−0.01235");
  EXPECT_EQ(html::number(std::nullopt), "–");
  EXPECT_EQ(html::grouped(1234567), "1,234,567");
  EXPECT_EQ(html::grouped(123), "123");
  EXPECT_EQ(html::percent(0.000123), "0.0123 %");
  EXPECT_EQ(html::percent(0.0), "0");
  EXPECT_EQ(html::decibels(INFINITY), "∞ dB");
}

}  // namespace
}  // namespace fq::calibration_page_test
