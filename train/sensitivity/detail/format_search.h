#pragma once

/// The search for a format of each layer: a multiple-choice knapsack over damage and bits.

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

inline constexpr const char* kNoFormat = "none";

/// Layers that some format quantizes. Throws ArgumentError where there are none, and where `bits` are fewer
/// than the formats reach.
[[nodiscard]] std::vector<VariableLayer> reachable_layers(Module& model,
                                                          const std::vector<FormatVariant>& variants,
                                                          const Shape& input_shape,
                                                          const AutoQuantizeOptions& options);

/// A float model in evaluation mode, what each format makes of its layers, and what that costs. Points are
/// assignments of formats, going up in bits: those that pay, then, where it is none of them, the one of most
/// bits in each group.
class FormatSearch {
 public:
  /// One config a format; of kNoFormat it is not used. Calibrates and measures.
  FormatSearch(Module& model, DataLoader& data, const AutoQuantizeOptions& options,
               const std::vector<QuantConfig>& configs);

  /// Of least score within so many bits. Throws ArgumentError when there is none, saying how many are needed.
  [[nodiscard]] std::size_t within_bits(double bits) const;
  /// The first one that is within the budget, found as if accuracy rose with the bits; it is measured.
  [[nodiscard]] std::size_t within_accuracy(double budget);

  /// All of the plan but its config and constraint.
  [[nodiscard]] QuantizationPlan plan(std::size_t point);
  /// Leaves the point's modules in the model.
  void install(std::size_t point) const;
  /// Whether the layer's format at that point quantizes it.
  [[nodiscard]] bool quantizes(std::size_t layer, std::size_t point) const;

 private:
  using Formats = std::vector<std::size_t>;  // of each layer

  void make_layers(const std::vector<QuantConfig>& configs);
  void score_layers();
  void make_points();
  [[nodiscard]] bool changes(std::size_t layer, std::size_t format) const;
  [[nodiscard]] std::optional<KnapsackChoice> choice_of(int group, std::size_t format) const;
  [[nodiscard]] double score_of(const Damage& damage) const;
  [[nodiscard]] double bits_at(std::size_t point) const;
  [[nodiscard]] Formats formats_of(const std::vector<std::size_t>& choices) const;
  [[nodiscard]] Formats formats_at(std::size_t point) const;
  [[nodiscard]] Swaps swaps(std::size_t point) const;
  [[nodiscard]] TrialReport run(const std::vector<Swaps>& trials) const;
  [[nodiscard]] const Damage& measured(std::size_t point);

  Module& model_;
  DataLoader& data_;
  const AutoQuantizeOptions& options_;
  std::vector<VariableLayer> layers_;
  std::vector<PlannedLayer> planned_;  // without formats
  std::set<std::string> paths_;
  TrialReport report_;
  std::vector<Formats> choice_formats_;  // of the choices of each group
  std::optional<Knapsack> knapsack_;
  Formats widest_;
  double weights_ = 0;
  std::map<std::size_t, Damage> measured_;
};

}  // namespace fq::detail
