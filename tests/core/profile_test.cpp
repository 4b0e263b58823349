// Profiles: own times add up, scopes outside of steps do not count, the trace is JSON with nested
// events.

#include "fakequant/core/profile.h"

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/ops/activation.h"
#include "fakequant/core/tape.h"
#include "fakequant/core/trace.h"

namespace fq::profile_test {
namespace {

void spend(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

/// One step with 3 ms in "outer", 2 of them in conv1, and 1 ms outside of all scopes.
void work(bool counted = true) {
  ProfileStep step;
  {
    const ProfileScope outer("outer");
    spend(1);
    const PathScope path("conv1");
    const ProfileScope inner("product", "forward");
    spend(2);
  }
  spend(1);
  if (counted) step.count();
}

double total(const Profile& profile) {
  double sum = 0;
  for (const ProfileRow& row : profile.rows) sum += row.milliseconds;
  return sum;
}

TEST(Profile, SelfTimesSumToTheTotal) {
  Profiler profiler;
  const ProfilerScope scope(profiler);
  const auto begin = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - begin;
  const Profile found = profiler.profile();
  ASSERT_EQ(found.rows.size(), 3u);
  EXPECT_EQ(found.rows[0].kind, "other");
  EXPECT_EQ(found.rows[1].kind, "outer");
  EXPECT_EQ(found.rows[2].kind, "product forward");
  EXPECT_EQ(found.rows[2].layer, "conv1");
  EXPECT_NEAR(total(found), found.milliseconds, 1e-9);
  EXPECT_LE(found.milliseconds, wall.count());
  EXPECT_GE(found.rows[0].milliseconds, 1);
  EXPECT_GE(found.rows[1].milliseconds, 1);
  EXPECT_GE(found.rows[2].milliseconds, 2);
  double share = 0;
  for (const auto& row : found.rows) share += row.share;
  EXPECT_NEAR(share, 1, 1e-9);
}

TEST(Profile, SkipsTheFirstOfSeveralSteps) {
  Profiler profiler;
  const ProfilerScope scope(profiler);
  {
    ProfileStep step;
    const ProfileScope once("compile");
    spend(5);
    step.count();
  }
  EXPECT_EQ(profiler.profile().steps, 1);
  EXPECT_EQ(profiler.profile().rows.size(), 2u);
  work();
  work(false);  // time before a step belongs to the next step
  work();
  const Profile found = profiler.profile();
  EXPECT_EQ(found.steps, 2);
  ASSERT_EQ(found.rows.size(), 3u);
  EXPECT_DOUBLE_EQ(found.rows[2].calls, 1.5);
}

TEST(Profile, RecordsNothingOutsideSteps) {
  Profiler profiler;
  const ProfilerScope scope(profiler);
  {
    const ProfileScope alone("quantize");
    spend(1);
  }
  EXPECT_TRUE(profiler.profile().rows.empty());
  EXPECT_EQ(profiler.profile().steps, 0);
}

TEST(Profile, IsOffByDefaultAndPerThread) {
  EXPECT_EQ(fq::profiler(), nullptr);
  Profiler profiler;
  const ProfilerScope scope(profiler);
  std::thread([] {
    EXPECT_EQ(fq::profiler(), nullptr);
    work();
  }).join();
  EXPECT_TRUE(profiler.profile().rows.empty());
}

TEST(Profile, BackwardUsesThePathOfTheForwardPass) {
  Profiler profiler;
  const ProfilerScope scope(profiler);
  {
    ProfileStep step;
    const Variable x(Tensor::full({4}, 1.0), true);
    Variable y;
    {
      const PathScope path("block.relu");
      y = ops::relu(x);
    }
    y.backward(Tensor::full({4}, 1.0));
    EXPECT_EQ(module_path(), "");
    step.count();
  }
  const Profile found = profiler.profile();
  ASSERT_EQ(found.rows.size(), 2u);
  EXPECT_EQ(found.rows[1].layer, "block.relu");
  EXPECT_EQ(found.rows[1].kind, "relu backward");
}

TEST(Profile, TraceIsNestedJson) {
  Profiler profiler;
  const ProfilerScope scope(profiler);
  work();
  work();
  const auto trace = nlohmann::json::parse(profiler.trace());
  std::map<std::string, int> names;
  std::vector<std::pair<double, double>> open;
  auto events = trace.at("traceEvents").get<std::vector<nlohmann::json>>();
  std::erase_if(events, [](const auto& event) { return event.at("ph") != "X"; });
  std::ranges::stable_sort(events, [](const auto& a, const auto& b) {
    return std::pair(a.at("ts").template get<double>(), -a.at("dur").template get<double>()) <
           std::pair(b.at("ts").template get<double>(), -b.at("dur").template get<double>());
  });
  for (const auto& event : events) {
    ++names[event.at("name")];
    EXPECT_TRUE(event.contains("cat") && event.contains("pid") && event.contains("tid"));
    const double begin = event.at("ts"), end = begin + event.at("dur").get<double>();
    while (!open.empty() && open.back().second <= begin) open.pop_back();
    if (!open.empty()) {
      EXPECT_LE(end, open.back().second + 1e-6);  // microseconds, printed to the nanosecond
    }
    open.emplace_back(begin, end);
  }
  EXPECT_EQ(names, (std::map<std::string, int>{{"other", 2}, {"outer", 2}, {"conv1: product forward", 2}}));
}

TEST(Profile, TraceEndsWithWholeSteps) {
  Profiler profiler(4);
  const ProfilerScope scope(profiler);
  for (int i = 0; i < 5; ++i) work();
  const auto trace = nlohmann::json::parse(profiler.trace());
  EXPECT_EQ(trace.at("traceEvents").size(), 1 + 2 * 3u);
  EXPECT_EQ(profiler.profile().steps, 4);
}

}  // namespace
}  // namespace fq::profile_test
