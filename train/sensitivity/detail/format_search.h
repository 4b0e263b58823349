#pragma once

/// Search for the format of each layer: a multiple-choice knapsack over damage and bits.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fakequant/train/sensitivity/auto_quantize.h"
#include "fakequant/train/sensitivity/detail/format_variants.h"

namespace fq::detail {

struct KnapsackChoice {
  double cost, score;
};

/// Finds all efficient costs: with rising cost, the score falls. Uses dynamic programming over groups. It
/// drops each partial sum that a cheaper one beats, and is exact with at most `most_states` partial sums.
/// With more, it also drops sums within one step of a cheaper one's score. `gap()` is the sum of the steps:
/// for any budget, the score found is at most that much above the minimum.
class Knapsack {
 public:
  /// Each group needs at least one choice.
  explicit Knapsack(const std::vector<std::vector<KnapsackChoice>>& groups,
                    std::size_t most_states = std::size_t{1} << 15);

  [[nodiscard]] std::size_t size() const noexcept { return stages_.back().size(); }
  [[nodiscard]] double cost(std::size_t point) const { return stages_.back().at(point).cost; }
  [[nodiscard]] double score(std::size_t point) const { return stages_.back().at(point).score; }
  /// Returns the choice of each group.
  [[nodiscard]] std::vector<std::size_t> choices(std::size_t point) const;
  /// Returns the point of smallest score within the budget; empty if the cheapest point costs more.
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

inline constexpr const char* kNoFormat = "none";

/// Returns the layers that some format quantizes. Throws ArgumentError if there are none, and if the
/// constraint has fewer bits than the formats reach.
[[nodiscard]] std::vector<VariableLayer> reachable_layers(Module& model,
                                                          const std::vector<FormatVariant>& variants,
                                                          const Shape& input_shape,
                                                          const AutoQuantizeOptions& options);

/// A float model in evaluation mode, the variants of its layers, and their damage. A point is an assignment
/// of formats to layers. Points are in the order of bits: first the points of the knapsack, then the point
/// with the most bits in each group, unless it is one of them.
class FormatSearch {
 public:
  /// Calibrates and measures the variants. `configs` has one config per format; the config of kNoFormat is
  /// not used.
  FormatSearch(Module& model, DataLoader& data, const AutoQuantizeOptions& options,
               const std::vector<QuantConfig>& configs);

  /// Returns the point of smallest score within `bits`. Throws ArgumentError naming the smallest possible
  /// number if there is none.
  [[nodiscard]] std::size_t find_by_bits(double bits) const;
  /// Returns and measures the first point within the accuracy budget, by bisection: assumes that accuracy
  /// rises with bits.
  [[nodiscard]] std::size_t find_by_accuracy(double budget);

  /// Returns the plan of a point, without its config and constraint.
  [[nodiscard]] QuantizationPlan plan(std::size_t point);
  /// Puts the modules of a point into the model.
  void install(std::size_t point) const;
  /// Returns whether the format of the layer at that point quantizes it.
  [[nodiscard]] bool quantizes(std::size_t layer, std::size_t point) const;

 private:
  using Formats = std::vector<std::size_t>;  // format of each layer

  void make_layers(const std::vector<QuantConfig>& configs);
  void score_layers();
  void make_points();
  [[nodiscard]] bool changes(std::size_t layer, std::size_t format) const;
  [[nodiscard]] std::optional<KnapsackChoice> group_choice(int group, std::size_t format) const;
  [[nodiscard]] double damage_score(const Damage& damage) const;
  [[nodiscard]] double point_bits(std::size_t point) const;
  [[nodiscard]] Formats layer_formats(const std::vector<std::size_t>& choices) const;
  [[nodiscard]] Formats point_formats(std::size_t point) const;
  [[nodiscard]] Swaps swaps(std::size_t point) const;
  [[nodiscard]] TrialReport run(const std::vector<Swaps>& trials) const;
  [[nodiscard]] const Damage& measured(std::size_t point);

  Module& model_;
  DataLoader& data_;
  const AutoQuantizeOptions& options_;
  std::vector<VariableLayer> layers_;
  std::vector<PlannedLayer> planned_;  // layers without chosen formats
  std::set<std::string> paths_;
  TrialReport report_;
  std::vector<Formats> choice_formats_;  // formats of the choices of each group
  std::optional<Knapsack> knapsack_;
  Formats widest_;
  double weights_ = 0;
  std::map<std::size_t, Damage> measured_;
};

}  // namespace fq::detail
