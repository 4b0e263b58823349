// A profile of training names every layer and kind, and adds up to the time of the steps.

#include "fakequant/core/profile.h"

#include <chrono>
#include <set>

#include "train/loop_run.h"

namespace fq::profile_test {
namespace {

std::set<std::string> layer_kinds(const Profile& profile, const std::string& layer) {
  std::set<std::string> kinds;
  for (const ProfileRow& row : profile.rows)
    if (row.layer == layer || row.layer.starts_with(layer + ".")) kinds.insert(row.kind);
  return kinds;
}

struct Profiled {
  Profile profile;
  double milliseconds = 0;  ///< of the whole run
  std::int64_t steps = 0;
};

Profiled profiled(bool quantized) {
  test::Plan plan{.quantized = quantized};
  plan.options.ranges.amax = quantized ? AmaxMode::running : AmaxMode::frozen;
  const auto trainer = plan.make();
  Profiler profiler;
  const ProfilerScope scope(profiler);
  const auto begin = std::chrono::steady_clock::now();
  const auto result = trainer->fit();
  const std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - begin;
  return {profiler.profile(), wall.count(), result.steps};
}

void expect_adds_up(const Profiled& run) {
  EXPECT_EQ(run.profile.steps, run.steps - 1);
  double sum = 0, share = 0;
  for (const ProfileRow& row : run.profile.rows) {
    EXPECT_GE(row.milliseconds, 0) << row.layer << ' ' << row.kind;
    sum += row.milliseconds;
    share += row.share;
  }
  EXPECT_NEAR(sum, run.profile.milliseconds, 1e-9 * sum);
  EXPECT_NEAR(share, 1, 1e-9);
  EXPECT_LE(sum * static_cast<double>(run.profile.steps), run.milliseconds);
}

TEST(ProfiledTraining, ReportsFloatLayersAndKinds) {
  const Profiled run = profiled(false);
  expect_adds_up(run);
  EXPECT_TRUE(layer_kinds(run.profile, "conv").contains("product forward"));
  EXPECT_TRUE(layer_kinds(run.profile, "conv").contains("dW"));
  EXPECT_FALSE(
      layer_kinds(run.profile, "conv").contains("dX"));  // the gradient of the images is not computed
  for (const char* kind : {"product forward", "dX", "dW"})
    EXPECT_TRUE(layer_kinds(run.profile, "fc").contains(kind)) << kind;
  EXPECT_EQ(layer_kinds(run.profile, "bn"),
            (std::set<std::string>{"batch_norm forward", "batch_norm backward"}));
  for (const char* layer : {"relu", "pool", "drop"})
    EXPECT_EQ(layer_kinds(run.profile, layer).size(), 2u) << layer;
  const auto outside = layer_kinds(run.profile, "");
  for (const char* kind : {"optimizer", "loader", "cross_entropy forward", "cross_entropy backward", "other"})
    EXPECT_TRUE(outside.contains(kind)) << kind;
}

TEST(ProfiledTraining, ReportsQuantizedLayersAndKinds) {
  const Profiled run = profiled(true);
  expect_adds_up(run);
  for (const char* kind : {"quantize", "product forward", "dW"})
    EXPECT_TRUE(layer_kinds(run.profile, "conv").contains(kind)) << kind;
  for (const char* kind : {"quantize", "product forward", "dX", "dW"})
    EXPECT_TRUE(layer_kinds(run.profile, "fc").contains(kind)) << kind;
  std::set<std::string> all;
  for (const ProfileRow& row : run.profile.rows) all.insert(row.kind);
  EXPECT_TRUE(all.contains("epilogue"));
}

}  // namespace
}  // namespace fq::profile_test
