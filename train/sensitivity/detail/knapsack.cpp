#include "fakequant/train/sensitivity/detail/knapsack.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace fq::detail {

Knapsack::Knapsack(const std::vector<std::vector<KnapsackChoice>>& groups, std::size_t most_states)
    : stages_{{{0, 0, 0, 0}}} {
  for (const auto& group : groups) {
    const auto& before = stages_.back();
    std::vector<State> states;
    for (std::uint32_t i = 0; i < before.size(); ++i)
      for (std::uint32_t choice = 0; choice < group.size(); ++choice)
        states.push_back(
            {before[i].cost + group[choice].cost, before[i].score + group[choice].score, i, choice});
    std::ranges::sort(states, {}, [](const State& s) { return std::tuple(s.cost, s.score); });
    double least = std::numeric_limits<double>::infinity();
    std::erase_if(states,
                  [&](const State& s) { return s.score >= std::exchange(least, std::min(least, s.score)); });
    thin(states, most_states);
    stages_.push_back(std::move(states));
  }
}

void Knapsack::thin(std::vector<State>& states, std::size_t most_states) {
  if (states.size() <= most_states) return;
  const double step = (states.front().score - states.back().score) / static_cast<double>(most_states);
  double kept = std::numeric_limits<double>::infinity();
  std::erase_if(states, [&](const State& s) {
    const bool near = s.score >= kept - step;
    if (!near) kept = s.score;
    return near;
  });
  gap_ += step;
}

std::vector<std::size_t> Knapsack::choices(std::size_t point) const {
  std::vector<std::size_t> out(stages_.size() - 1);
  for (std::size_t stage = out.size(); stage-- > 0;) {
    const State& state = stages_[stage + 1].at(point);
    out[stage] = state.choice;
    point = state.before;
  }
  return out;
}

std::optional<std::size_t> Knapsack::best(double budget) const {
  const auto& points = stages_.back();
  const auto beyond = std::ranges::upper_bound(points, budget, {}, &State::cost);
  if (beyond == points.begin()) return std::nullopt;
  return static_cast<std::size_t>(beyond - points.begin()) - 1;
}

}  // namespace fq::detail
