// Learned ranges under a rate that would take them to zero or infinity.

#include <gtest/gtest.h>

#include "fakequant/core/log.h"
#include "train/loop_run.h"

namespace fq::range_guard_test {
namespace {

using test::Plan;

Plan learning(double rate) {
  Plan run;
  run.quantized = true;
  run.options.amax = AmaxMode::learned;
  run.options.learn_weight_ranges = true;
  run.options.average_decay = 0;
  run.options.epochs = 1;
  run.options.optimizer = {.learning_rate = rate};
  run.options.schedule = {.kind = "constant"};
  return run;
}

std::vector<float> ranges_of(const StateDict& state) {
  std::vector<float> out;
  for (const auto& [name, tensor] : state.tensors())
    if (name.starts_with("parameters/") && name.ends_with("amax"))
      for (const float v : tensor.to_vector<float>()) out.push_back(v);
  return out;
}

TEST(RangeGuard, StepsOfAnyRateHalveOrDoubleARangeAtMost) {
  std::string told;
  set_log_callback([&](LogLevel, std::string_view message) { told += message; });
  const Plan run = learning(30);
  const auto trainer = run.make();
  const auto before = ranges_of(trainer->state_dict());
  const auto result = trainer->fit();
  set_log_callback({});
  const auto after = ranges_of(trainer->state_dict());
  ASSERT_EQ(before.size(), after.size());
  ASSERT_GT(before.size(), 2u);
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_GE(after[i], before[i] / 64) << i;  // six steps
    EXPECT_LE(after[i], before[i] * 64) << i;
  }
  EXPECT_GT(result.ranges_held, 0);
  EXPECT_NE(told.find("they were held there"), std::string::npos) << told;
}

TEST(RangeGuard, OrdinaryStepsAreLeftAlone) {
  const auto trainer = learning(1e-3).make();
  EXPECT_EQ(trainer->fit().ranges_held, 0);
}

}  // namespace
}  // namespace fq::range_guard_test
