#pragma once

/// The multiple-choice knapsack: one choice of each group, least score within a budget.

#include <cstdint>
#include <optional>
#include <vector>

namespace fq::detail {

struct KnapsackChoice {
  double cost, score;
};

/// Every cost that pays: going up in cost, the score falls. Dynamic programming over groups, of whose partial
/// sums only those stay that no cheaper one beats. Exact while there are no more than `most_states` of them;
/// beyond, sums that are within a step of a cheaper one's score go too, and `gap()` is the sum of the steps:
/// for any budget the score found is at most that much above the least.
class Knapsack {
 public:
  /// Groups with one choice at least.
  explicit Knapsack(const std::vector<std::vector<KnapsackChoice>>& groups,
                    std::size_t most_states = std::size_t{1} << 15);

  [[nodiscard]] std::size_t size() const noexcept { return stages_.back().size(); }
  [[nodiscard]] double cost(std::size_t point) const { return stages_.back().at(point).cost; }
  [[nodiscard]] double score(std::size_t point) const { return stages_.back().at(point).score; }
  /// The choice of each group.
  [[nodiscard]] std::vector<std::size_t> choices(std::size_t point) const;
  /// The point of least score within the budget; none when even the cheapest costs more.
  [[nodiscard]] std::optional<std::size_t> best(double budget) const;
  [[nodiscard]] double gap() const noexcept { return gap_; }

 private:
  struct State {
    double cost, score;
    std::uint32_t before, choice;
  };
  void thin(std::vector<State>& states, std::size_t most_states);

  std::vector<std::vector<State>> stages_;  // the first is one state before any group
  double gap_ = 0;
};

}  // namespace fq::detail
