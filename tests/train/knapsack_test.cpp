#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "fakequant/train/sensitivity/detail/format_search.h"

namespace fq::detail::knapsack_test {
namespace {

using Groups = std::vector<std::vector<KnapsackChoice>>;

Groups random_groups(std::mt19937& random, std::size_t count, bool integers) {
  std::uniform_int_distribution<int> size(1, 4), whole(-3, 9);
  std::uniform_real_distribution<double> part(-1, 5);
  Groups groups(count);
  for (auto& group : groups)
    for (int i = size(random); i > 0; --i)
      group.push_back({static_cast<double>(whole(random) + 4), integers ? whole(random) : part(random)});
  return groups;
}

/// Returns the lowest score of all assignments within the budget. Scores are added in the same order.
double brute_force(const Groups& groups, double budget, std::size_t at = 0, double cost = 0,
                   double score = 0) {
  if (at == groups.size()) return cost <= budget ? score : std::numeric_limits<double>::infinity();
  double least = std::numeric_limits<double>::infinity();
  for (const auto& choice : groups[at])
    least = std::min(least, brute_force(groups, budget, at + 1, cost + choice.cost, score + choice.score));
  return least;
}

TEST(Knapsack, MatchesExhaustiveSearch) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const Groups groups = random_groups(random, static_cast<std::size_t>(1 + round % 7), round % 2 == 0);
    const Knapsack knapsack(groups);
    EXPECT_EQ(knapsack.gap(), 0);
    for (double budget = 0; budget < 80; budget += 0.5) {
      const auto point = knapsack.best(budget);
      const double least = brute_force(groups, budget);
      ASSERT_EQ(point.has_value(), std::isfinite(least)) << budget;
      if (!point) continue;
      EXPECT_EQ(knapsack.score(*point), least) << "round " << round << ", budget " << budget;
      double cost = 0, score = 0;
      const auto choices = knapsack.choices(*point);
      ASSERT_EQ(choices.size(), groups.size());
      for (std::size_t i = 0; i < groups.size(); ++i) {
        cost += groups[i][choices[i]].cost;
        score += groups[i][choices[i]].score;
      }
      EXPECT_LE(cost, budget);
      EXPECT_EQ(cost, knapsack.cost(*point));
      EXPECT_EQ(score, knapsack.score(*point));
    }
  }
}

TEST(Knapsack, FrontierDecreasesWithCost) {
  std::mt19937 random(3);
  const Knapsack knapsack(random_groups(random, 12, false));
  for (std::size_t i = 1; i < knapsack.size(); ++i) {
    EXPECT_GT(knapsack.cost(i), knapsack.cost(i - 1));
    EXPECT_LT(knapsack.score(i), knapsack.score(i - 1));
  }
}

TEST(Knapsack, GapIsValidWithFewStates) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    Groups groups = random_groups(random, 10, false);
    for (auto& group : groups)  // costs of many values, so that there are many states
      for (auto& choice : group) choice.cost *= 1 + std::uniform_real_distribution<double>(0, 1)(random);
    const Knapsack exact(groups), thin(groups, 12);
    EXPECT_LE(thin.size(), 13U);
    for (double budget = 20; budget < 160; budget += 3) {
      const auto a = exact.best(budget), b = thin.best(budget);
      if (!a) continue;
      ASSERT_TRUE(b.has_value());
      EXPECT_LE(thin.cost(*b), budget);
      EXPECT_GE(thin.score(*b), exact.score(*a) - 1e-12);
      EXPECT_LE(thin.score(*b), exact.score(*a) + thin.gap() + 1e-12);
    }
  }
}

TEST(Knapsack, HundredsOfLayersStayWithinTheStateLimit) {
  std::mt19937 random(11);
  std::uniform_real_distribution<double> score(0, 1);
  Groups groups(200);
  for (auto& group : groups)
    for (const double bits : {4.0, 8.0, 16.0})
      group.push_back({bits * (1000 + score(random)), score(random) / bits});
  const Knapsack knapsack(groups, 2000);
  EXPECT_LE(knapsack.size(), 2001U);
  EXPECT_GT(knapsack.gap(), 0);
  EXPECT_LT(knapsack.gap(), 0.1 * (knapsack.score(0) - knapsack.score(knapsack.size() - 1)));
}

}  // namespace
}  // namespace fq::detail::knapsack_test
