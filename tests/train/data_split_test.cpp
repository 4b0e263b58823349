#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/train/data/writer/split.h"

namespace fq::data_split_test {
namespace {

using detail::kTest;
using detail::kTrain;
using detail::kValidation;
using detail::Labels;
using detail::split_samples;
using detail::Task;

Labels labels(const std::vector<std::int64_t>& values) {
  return {Task::classes, Tensor::from(values, {static_cast<std::int64_t>(values.size())}), {}};
}

std::int64_t count(const std::vector<std::uint8_t>& groups, std::uint8_t group) {
  return std::ranges::count(groups, group);
}

TEST(DataSplit, SharesOfEveryClassAreAsNearAsCanBe) {
  std::vector<std::int64_t> values;
  for (std::int64_t c = 0; c < 20; ++c)
    for (std::int64_t i = 0; i < 7 + 13 * c; ++i) values.push_back(c);
  const auto size = static_cast<std::int64_t>(values.size());
  const auto groups = split_samples(labels(values), size, {.validation = 0.15, .test = 0.3, .seed = 3});
  for (std::int64_t c = 0; c < 20; ++c) {
    std::int64_t tests = 0, held = 0;
    for (std::int64_t i = 0; i < size; ++i)
      if (values[std::size_t(i)] == c) {
        tests += groups[std::size_t(i)] == kTest;
        held += groups[std::size_t(i)] == kValidation;
      }
    EXPECT_NEAR(double(tests), 0.3 * double(7 + 13 * c), 1) << c;
    EXPECT_NEAR(double(held), 0.15 * double(7 + 13 * c), 1) << c;
  }
  EXPECT_NEAR(double(count(groups, kTest)), 0.3 * double(size), 0.5) << "roundings of the classes even out";
}

TEST(DataSplit, DependsOnTheSeedAlone) {
  const std::vector<std::int64_t> values(100, 0);
  const auto first = split_samples(labels(values), 100, {.test = 0.2, .seed = 1});
  EXPECT_EQ(first, split_samples(labels(values), 100, {.test = 0.2, .seed = 1}));
  EXPECT_NE(first, split_samples(labels(values), 100, {.test = 0.2, .seed = 2}));
  EXPECT_EQ(first, split_samples({}, 100, {.test = 0.2, .seed = 1})) << "no labels are one class";
}

TEST(DataSplit, AClassKeepsASampleForTraining) {
  const auto groups = split_samples(labels({0, 1, 2, 3}), 4, {.validation = 0.45, .test = 0.45});
  EXPECT_EQ(count(groups, kTrain), 4);
  EXPECT_EQ(count(split_samples(labels({0, 1, 2, 3}), 4, {.test = 1}), kTest), 4)
      << "unless there is no training";
}

TEST(DataSplit, EverySampleIsDrawnEquallyOften) {
  std::vector<int> drawn(50);
  constexpr int kSeeds = 4000;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const auto groups = split_samples({}, 50, {.test = 0.2, .seed = std::uint64_t(seed)});
    for (std::size_t i = 0; i < drawn.size(); ++i) drawn[i] += groups[i] == kTest;
  }
  // 800 expected, standard deviation 25: six of them come by once in 10^7 runs of other seeds, and never
  // here.
  EXPECT_THAT(drawn, testing::Each(testing::AllOf(testing::Gt(650), testing::Lt(950))));
}

TEST(DataSplit, RefusesSharesThatAreNone) {
  EXPECT_THROW((void)split_samples({}, 10, {.test = -0.1}), ArgumentError);
  EXPECT_THROW((void)split_samples({}, 10, {.validation = 0.6, .test = 0.6}), ArgumentError);
}

}  // namespace
}  // namespace fq::data_split_test
