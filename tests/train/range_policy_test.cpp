// Learned ranges: the limits of a step, and a Trainer that rejects its options.

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/log.h"
#include "train/loop_run.h"

namespace fq::range_policy_test {
namespace {

using test::Plan;

Plan learning(double rate) {
  Plan run;
  run.quantized = true;
  run.options.ranges.amax = AmaxMode::learned;
  run.options.ranges.learn_weight_ranges = true;
  run.options.update.average_decay = 0;
  run.options.epochs = 1;
  run.options.optimizer = {.learning_rate = rate};
  run.options.schedule = {.kind = "constant"};
  return run;
}

std::vector<float> state_ranges(const StateDict& state) {
  std::vector<float> out;
  for (const auto& [name, tensor] : state.tensors())
    if (name.starts_with("parameters/") && name.ends_with("amax"))
      for (const float v : tensor.to_vector<float>()) out.push_back(v);
  return out;
}

TEST(RangePolicy, StepsAtMostHalveOrDoubleARange) {
  std::string text;
  set_log_callback([&](LogLevel, std::string_view message) { text += message; });
  const Plan run = learning(30);
  const auto trainer = run.make();
  const auto before = state_ranges(trainer->state_dict());
  const auto result = trainer->fit();
  set_log_callback({});
  const auto after = state_ranges(trainer->state_dict());
  ASSERT_EQ(before.size(), after.size());
  ASSERT_GT(before.size(), 2u);
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_GE(after[i], before[i] / 64) << i;  // six steps
    EXPECT_LE(after[i], before[i] * 64) << i;
  }
  EXPECT_GT(result.ranges_limited, 0);
  EXPECT_NE(text.find("the ranges were limited"), std::string::npos) << text;
}

TEST(RangePolicy, KeepsSmallSteps) {
  const auto trainer = learning(1e-3).make();
  EXPECT_EQ(trainer->fit().ranges_limited, 0);
}

TEST(RangePolicy, RejectedOptionsChangeNothing) {
  const auto model = test::small_network(true);
  visit_quantizers(*model, [](const NamedQuantizer& q) { q.quantizer->set_amax(Tensor::scalar(2)); });
  const auto parameters = model->named_parameters().size();
  const auto make = [&](std::int64_t quant_start) {
    TrainerOptions options = learning(1).options;
    options.ranges.quant_start = quant_start;
    return Trainer(model, std::make_shared<DataLoader>(test::quadrants(96, 1), test::shuffled()), options);
  };
  EXPECT_THROW(make(-1), ArgumentError);
  EXPECT_EQ(model->named_parameters().size(), parameters);
  (void)make(0);
  EXPECT_GT(model->named_parameters().size(), parameters);
}

}  // namespace
}  // namespace fq::range_policy_test
