#include "fakequant/train/schedule.h"

#include <cmath>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"

namespace fq::schedule_test {
namespace {

void expect_values(const Schedule& schedule, const std::vector<double>& expected, double tolerance = 1e-14) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(schedule(static_cast<std::int64_t>(i)), expected[i], tolerance) << "step " << i;
}

TEST(Schedule, SupportsConstantAndStep) {
  expect_values(schedule::constant(0.5), {0.5, 0.5, 0.5});
  expect_values(schedule::step(2, 0.1), {1, 1, 0.1, 0.1, 0.01});
}

TEST(Schedule, CosineEndsAtItsLastValue) {
  expect_values(schedule::cosine(4), {1, 0.85355339059327373, 0.5, 0.14644660940672627, 0, 0});
  expect_values(schedule::cosine(2, 0.5), {1, 0.75, 0.5, 0.5});
}

// torch 2.15: MultiStepLR, PolynomialLR, CosineAnnealingWarmRestarts, ReduceLROnPlateau in mode max.
TEST(Schedule, MilestonesPowersAndRestartsMatchTorch) {
  expect_values(schedule::multi_step({2, 3}, 0.5), {1, 1, 0.5, 0.25, 0.25, 0.25});
  expect_values(schedule::polynomial(4, 2), {1, 0.5625, 0.25, 0.0625, 0, 0});
  expect_values(schedule::polynomial(2, 1, 0.5), {1, 0.75, 0.5, 0.5});
  expect_values(schedule::restarts(2, 2, 0.1),
                {1, 0.55, 1, 0.8681980515339464, 0.55, 0.23180194846605365, 1, 0.9657457896300791});
  EXPECT_NEAR(schedule::restarts(3)((std::int64_t{1} << 40) * 3 + 1), schedule::restarts(3)(1), 1e-14);
}

TEST(Schedule, PlateauMatchesTorch) {
  Plateau plateau(0.5, 1);
  std::vector<double> found;
  for (const double score : {0.1, 0.1, 0.1, 0.2, 0.20001, 0.2, 0.2, 0.3, 0.2, 0.2, 0.2}) {
    Plateau resumed(0.5, 1);
    resumed.load_state(plateau.state_dict());
    found.push_back(plateau.update(score));
    EXPECT_EQ(resumed.update(score), found.back());
  }
  EXPECT_EQ(found, (std::vector<double>{1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.125, 0.125}));
  Plateau falling(0.1, 0);
  EXPECT_EQ(falling.update(-2), 1);
  EXPECT_EQ(falling.update(-1), 1);
  EXPECT_EQ(falling.update(std::nan("")), 0.1);
  EXPECT_THROW(Plateau(1, 0), ArgumentError);
  EXPECT_THROW(Plateau(0.1, -1), ArgumentError);
  StateDict damaged = falling.state_dict();
  damaged.set_attribute("factor", 0);
  damaged.set_attribute("waited", 7);
  const auto text = [](const StateDict& state) { return state.attribute("waited"); };
  const auto before = text(falling.state_dict());
  EXPECT_THROW(falling.load_state(damaged), ArgumentError);
  EXPECT_EQ(text(falling.state_dict()), before);
  EXPECT_THROW(falling.load_state({}), ArgumentError);
}

TEST(Schedule, SupportsWarmUp) {
  expect_values(schedule::warm_up(4, schedule::step(1, 0.5)), {0, 0.25, 0.5, 0.75, 1, 0.5, 0.25});
  expect_values(schedule::warm_up(2, schedule::constant(), 0.5), {0.5, 0.75, 1, 1});
}

// torch 2.15: OneCycleLR(max_lr=1, total_steps=10), and total_steps=7, pct_start=0.5, div_factor=10,
// final_div_factor=100.
TEST(Schedule, OneCycleMatchesTorch) {
  expect_values(schedule::one_cycle(10),
                {0.040000000000000036, 0.52, 1, 0.95048463201347366, 0.81174565394976306, 0.61126202193628931,
                 0.38874197806371075, 0.18825834605023697, 0.049519367986526286, 4e-06, 4e-06});
  expect_values(schedule::one_cycle(7, 0.5, 10, 100),
                {0.1, 0.41094235253127365, 0.91405764746872631, 0.95053394951725834, 0.61164920651117904,
                 0.18906684397156262, 0.001});
}

TEST(Schedule, OneCycleSupportsFewSteps) {
  for (std::int64_t total = 1; total < 6; ++total)
    for (const double fraction : {0.0, 0.3, 1.0})
      for (std::int64_t at = 0; at <= total; ++at) {
        const double factor = schedule::one_cycle(total, fraction)(at);
        EXPECT_TRUE(factor > 0 && factor <= 1) << total << ' ' << fraction << ' ' << at;
      }
}

TEST(Schedule, SupportsSequenceAndProduct) {
  expect_values(
      schedule::sequence({{2, schedule::constant(0.1)}, {2, schedule::cosine(2)}, {0, schedule::constant()}}),
      {0.1, 0.1, 1, 0.5, 1, 1});
  expect_values(schedule::product(schedule::step(1, 0.5), schedule::constant(4)), {4, 2, 1});
}

TEST(Schedule, IsCreatedByName) {
  expect_values(make_schedule({}, 10), {1, 1});
  expect_values(make_schedule({.kind = "cosine", .warm_up = 2}, 6), {0, 0.5, 1, 0.85355339059327373, 0.5});
  expect_values(make_schedule({.kind = "step"}, 6), {1, 1, 0.1, 0.1, 0.01, 0.01});
  expect_values(make_schedule({.kind = "one_cycle"}, 10), {0.04, 0.52, 1});
  EXPECT_EQ(make_schedule({.kind = "cosine"}, 0)(0), 1);
}

TEST(Schedule, RejectsInvalidOptions) {
  EXPECT_THROW((void)schedule::step(0), ArgumentError);
  EXPECT_THROW((void)schedule::cosine(0), ArgumentError);
  EXPECT_THROW((void)schedule::one_cycle(10, 1.5), ArgumentError);
  EXPECT_THROW((void)schedule::one_cycle(10, 0.5, 0.5), ArgumentError);
  EXPECT_THROW((void)schedule::sequence({}), ArgumentError);
  EXPECT_THROW((void)schedule::warm_up(-1, schedule::constant()), ArgumentError);
  try {
    (void)make_schedule({.kind = "cosin"}, 10);
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'cosine'"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace fq::schedule_test
