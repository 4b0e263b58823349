#include "fakequant/report/detail/runs/run_page.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "export/temporary.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/report/detail/runs/line_plot.h"
#include "fakequant/report/detail/runs/run_summary.h"

namespace fq::run_page_test {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHostile = "</title><script>alert('1')</script>\"&";

ordered_json step(std::int64_t at, double loss) {
  return {{"event", "step"}, {"step", at}, {"epoch", 1}, {"loss", loss}, {"lr", 0.1}};
}

detail::RunRecord make_record(const std::string& name) {
  detail::RunRecord out;
  out.lines = {step(1, 2.5), step(2, 2)};
  out.lines.push_back({{"event", "epoch"},
                       {"step", 2},
                       {"epoch", 1},
                       {"loss", 2},
                       {"val_loss", 1.5},
                       {"quantizers", {{name, {{"amax", 3.5}, {"clipped", 0.25}}}}},
                       {"phases", {{name, 2.0}, {"backward", 6.0}}}});
  out.lines.push_back({{"event", "classes"},
                       {"step", 2},
                       {"of", name},
                       {"samples", 4},
                       {"names", {name, "b"}},
                       {"confusion", {{2, 1}, {0, 1}}},
                       {"worst", {{{"row", 7}, {"label", 0}, {"answer", 1}, {"probability", 0.125}}}}});
  return out;
}

TEST(RunPage, EscapesTextAndHasNoExternalReferences) {
  const auto record = make_record(kHostile);
  const std::string page = html::run_html({.title = kHostile,
                                           .config = {{"model", kHostile}, {"given", {{kHostile, kHostile}}}},
                                           .record = &record});
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("alert('")));
  for (const char* reference : {"http:", "https:", "url(", "@import", "<link", "fetch("})
    EXPECT_THAT(page, Not(HasSubstr(reference)));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  for (const char* part : {"75 %", "25 %", "3.5", "not b", "12 %"}) EXPECT_THAT(page, HasSubstr(part));
}

TEST(ComparePage, MarksTrainingValuesAndNamesRuns) {
  detail::RunSummary run{.name = "a", .command = "train", .model = "cnn", .format = "float", .state = "done"};
  run.given = ordered_json::object();
  run.accuracy = 90;
  run.bytes = 1000;
  auto validated = run;
  validated.validated = true;
  const std::string page = html::compare_html({run, validated});
  EXPECT_THAT(page, HasSubstr("class=hollow"));
  EXPECT_THAT(page, HasSubstr("Hollow: accuracy in training"));
  EXPECT_THAT(page, HasSubstr("data-of=runs"));
  EXPECT_THAT(html::compare_html({validated, validated}), Not(HasSubstr("Hollow")));
}

TEST(RunPage, ReloadsWhileTheRunContinues) {
  const detail::RunRecord record;
  html::RunPage page{.title = "t", .config = ordered_json::object(), .record = &record};
  EXPECT_THAT(html::run_html(page), Not(HasSubstr("http-equiv=refresh")));
  page.seconds_left = 125;
  EXPECT_THAT(html::run_html(page), HasSubstr("http-equiv=refresh"));
  EXPECT_THAT(html::run_html(page), HasSubstr("2 min left"));
}

TEST(RunPage, PlotsOmitNonFiniteValues) {
  EXPECT_EQ(html::line_plot("t", {{"a", {{1, NAN}, {2, INFINITY}}}}, 2), "");
  const std::string one = html::line_plot("t", {{"a", {{1, NAN}, {2, 3}}}}, 2);
  EXPECT_THAT(one, Not(HasSubstr("nan")));
  EXPECT_THAT(one, HasSubstr("3 at step 2"));
  EXPECT_THAT(html::line_plot("t", {{"a", {{1, 0.01}, {2, 3}}}}, 2, html::Span::logarithmic),
              HasSubstr("logarithmic"));
}

TEST(RunRecord, DropsAnIncompleteLineAndNamesAnInvalidOne) {
  const std::string path = test::temporary("metrics.jsonl");
  write_file(path, make_record("q").text() + "{\"event\": \"st");
  auto read = detail::RunRecord::load(path);
  EXPECT_EQ(read.lines, make_record("q").lines);
  read.truncate(1);
  ASSERT_EQ(read.lines.size(), 1U);
  EXPECT_EQ(read.lines[0], step(1, 2.5));
  for (const char* bad : {"[]\n", "{\"event\": 3, \"step\": 1}\n", "{\"event\": \"step\"}\n", "nonsense\n"}) {
    write_file(path, make_record("q").text() + bad);
    try {
      (void)detail::RunRecord::load(path);
      FAIL() << bad;
    } catch (const FileError& error) {
      EXPECT_THAT(error.what(), HasSubstr("metrics.jsonl:5"));
    }
  }
}

TEST(RunRecord, ConvertsToATable) {
  EXPECT_EQ(metrics_csv(make_record("q")),
            "event,step,epoch,loss,lr,val_loss\nstep,1,1,2.5,0.1,\nstep,2,1,2.0,0.1,\nepoch,2,1,2,,1.5\n");
}

TEST(RunSummary, ReportsTheBestEpochAndDifferences) {
  auto record = make_record("q");
  record.lines.push_back(
      {{"event", "epoch"}, {"step", 4}, {"val_loss", 1.0}, {"val_accuracy", 90}, {"best", true}});
  record.lines.push_back(
      {{"event", "epoch"}, {"step", 6}, {"val_loss", 2.0}, {"val_accuracy", 80}, {"best", false}});
  record.lines.push_back(
      {{"event", "end"}, {"step", 6}, {"state", "done"}, {"result", {{"weight_bytes", 100}}}});
  const ordered_json config{{"command", "qat"},
                            {"preset", "w4a4"},
                            {"parameters", 200},
                            {"quantization", {{"preset", "w4a4"}}},
                            {"given", {{"lr", "0.1"}}}};
  const auto run = summarize_run("a", config, record);
  EXPECT_EQ(run.accuracy, 90);
  EXPECT_EQ(run.bits, 4);
  EXPECT_EQ(run.format, "w4a4");
  auto other = run;
  other.given = {{"lr", "0.2"}, {"batch", "3"}};
  EXPECT_THAT(detail::differing_flags({run, other}), ::testing::ElementsAre("batch", "lr"));
  EXPECT_THAT(html::compare_html({run, other}), HasSubstr("--batch"));
  auto same = run;
  same.given = {{"batch", "64"}, {"lr", "1e-1"}, {"ema", "0"}};
  same.defaults = {{"no-capture", false}};
  other = run;
  other.given = {{"lr", "0.1"}};
  other.defaults = {{"batch", "64"}, {"ema", "0"}};
  EXPECT_THAT(detail::differing_flags({same, other}), ::testing::IsEmpty());
  EXPECT_EQ(detail::flag_text(same, "no-capture"), "");
}

}  // namespace
}  // namespace fq::run_page_test
