#include "fakequant/train/sensitivity/detail/format_search.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/ptq/detail/float_run.h"
#include "fakequant/train/sensitivity/sensitivity.h"

namespace fq::detail {
namespace {

constexpr const char* kAuto = "auto_quantize";

[[noreturn]] void refuse_bits(double bits, double fewest) {
  throw ArgumentError(
      fmt::format("[{}] effective_bits is {}, the fewest that these formats reach are {:.4f}: use more bits, "
                  "or formats with fewer bits",
                  kAuto, bits, fewest));
}

}  // namespace

Knapsack::Knapsack(const std::vector<std::vector<KnapsackChoice>>& groups, std::size_t most_states)
    : stages_{{{0, 0, 0, 0}}} {
  for (const auto& group : groups) {
    const auto& before = stages_.back();
    // All sums of a state before and a choice of this group.
    std::vector<State> states;
    for (std::uint32_t i = 0; i < before.size(); ++i)
      for (std::uint32_t choice = 0; choice < group.size(); ++choice)
        states.push_back(
            {before[i].cost + group[choice].cost, before[i].score + group[choice].score, i, choice});
    // In the order of cost, a state stays only if its score is below all cheaper ones (Pareto front).
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
  // Scores fall along the front: states within one step of the last one that stayed are dropped.
  const double step = (states.front().score - states.back().score) / static_cast<double>(most_states);
  double last = std::numeric_limits<double>::infinity();
  std::erase_if(states, [&](const State& s) {
    const bool near = s.score >= last - step;
    if (!near) last = s.score;
    return near;
  });
  gap_ += step;
}

std::vector<std::size_t> Knapsack::choices(std::size_t point) const {
  std::vector<std::size_t> out(stages_.size() - 1);
  // Follows the states back from the last group to the first.
  for (std::size_t stage = out.size(); stage-- > 0;) {
    const State& state = stages_[stage + 1].at(point);
    out[stage] = state.choice;
    point = state.before;
  }
  return out;
}

std::optional<std::size_t> Knapsack::best(double budget) const {
  const auto& points = stages_.back();
  // Points are in the order of cost, and the last affordable one has the smallest score.
  const auto beyond = std::ranges::upper_bound(points, budget, {}, &State::cost);
  if (beyond == points.begin()) return std::nullopt;
  return static_cast<std::size_t>(beyond - points.begin()) - 1;
}

std::vector<VariableLayer> reachable_layers(Module& model, const std::vector<FormatVariant>& variants,
                                            const Shape& input_shape, const AutoQuantizeOptions& options) {
  auto layers = variable_layers(model, variants, input_shape);
  FQ_CHECK(!layers.empty(), kAuto, "no format quantizes a layer of this model: use other formats");
  if (!options.constraint.effective_bits) return layers;
  std::vector<bool> floats;
  for (const auto& format : options.formats) floats.push_back(format == kNoFormat);
  const double bits = *options.constraint.effective_bits, fewest = fewest_bits(layers, floats);
  // Allows for rounding in the sum of bits.
  if (bits < fewest * (1 - 1e-9)) refuse_bits(bits, fewest);
  return layers;
}

FormatSearch::FormatSearch(Module& model, DataLoader& data, const AutoQuantizeOptions& options,
                           const std::vector<QuantConfig>& configs)
    : model_(model), data_(data), options_(options) {
  make_layers(configs);
  score_layers();
  make_points();
}

void FormatSearch::make_layers(const std::vector<QuantConfig>& configs) {
  std::vector<FormatVariant> variants;
  for (std::size_t f = 0; f < configs.size(); ++f)
    variants.push_back(options_.formats[f] == kNoFormat
                           ? FormatVariant{}
                           : format_variant(model_, configs[f], data_, options_.calibration_samples));
  layers_ = reachable_layers(model_, variants, ptq::loader_input_shape(data_), options_);
  for (const auto& layer : layers_) {
    PlannedLayer planned{layer.path, layer.slot->module->type(), layer.weights, layer.group, {}};
    for (std::size_t f = 0; f < configs.size(); ++f)
      planned.scores.push_back(
          {options_.formats[f], layer.weights > 0 ? weight_bits(*layer.modules[f]) : 0, {}});
    planned_.push_back(std::move(planned));
    paths_.insert(layer.path);
    weights_ += static_cast<double>(layer.weights);
  }
}

TrialReport FormatSearch::run(const std::vector<Swaps>& trials) const {
  return run_trials(model_, data_, trials,
                    {kAuto, options_.score_samples, options_.cached, paths_, options_.ranks.get()});
}

bool FormatSearch::changes(std::size_t layer, std::size_t format) const {
  return layers_[layer].modules[format] != layers_[layer].slot->module;
}

void FormatSearch::score_layers() {
  std::vector<Swaps> trials;
  std::vector<FormatScore*> scored;
  for (std::size_t i = 0; i < layers_.size(); ++i)
    for (std::size_t f = 0; f < options_.formats.size(); ++f) {
      if (!changes(i, f)) continue;
      trials.push_back({{layers_[i].slot, layers_[i].modules[f]}});
      // A format that leaves a layer float has no damage and needs no trial.
      scored.push_back(&planned_[i].scores[f]);
    }
  report_ = run(trials);
  for (std::size_t i = 0; i < scored.size(); ++i) scored[i]->damage = report_.damages[i];
  // Loss and accuracy need labels; the divergence compares outputs only.
  const bool by_labels = options_.score == DamageScore::loss || options_.constraint.accuracy_budget;
  FQ_CHECK(report_.reference.count > 0 || !by_labels, kAuto,
           "the data has no labels: use some, or effective_bits and the score divergence");
}

double FormatSearch::damage_score(const Damage& damage) const {
  return options_.score == DamageScore::loss ? damage.loss_change : damage.divergence;
}

std::optional<KnapsackChoice> FormatSearch::group_choice(int group, std::size_t format) const {
  KnapsackChoice out{0, 0};
  bool exists = false;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].group != group) continue;
    const FormatScore& score = planned_[i].scores[format];
    // A format that quantizes no layer of the group is no choice for it, unless it is the float format.
    exists = exists || changes(i, format) || options_.formats[format] == kNoFormat;
    // Costs and scores of a group add up over its layers, which change format together.
    out.cost += static_cast<double>(layers_[i].weights) * score.bits;
    out.score += damage_score(score.damage);
  }
  return exists ? std::optional(out) : std::nullopt;
}

void FormatSearch::make_points() {
  const int last = std::ranges::max(layers_, {}, &VariableLayer::group).group;
  std::vector<std::vector<KnapsackChoice>> groups(static_cast<std::size_t>(last) + 1);
  std::vector<std::size_t> widest;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    auto& formats = choice_formats_.emplace_back();
    for (std::size_t f = 0; f < options_.formats.size(); ++f)
      if (const auto choice = group_choice(static_cast<int>(group), f)) {
        groups[group].push_back(*choice);
        formats.push_back(f);
      }
    const auto& choices = groups[group];
    widest.push_back(static_cast<std::size_t>(std::ranges::max_element(choices, {}, &KnapsackChoice::cost) -
                                              choices.begin()));
  }
  knapsack_.emplace(groups);
  // The most accurate point is not always on the front, whose scores are predictions.
  widest_ = layer_formats(widest);
}

FormatSearch::Formats FormatSearch::layer_formats(const std::vector<std::size_t>& choices) const {
  Formats out;
  for (const auto& layer : layers_) {
    const auto group = static_cast<std::size_t>(layer.group);
    out.push_back(choice_formats_[group][choices[group]]);
  }
  return out;
}

FormatSearch::Formats FormatSearch::point_formats(std::size_t point) const {
  return point < knapsack_->size() ? layer_formats(knapsack_->choices(point)) : widest_;
}

Swaps FormatSearch::swaps(std::size_t point) const {
  const Formats formats = point_formats(point);
  Swaps out;
  for (std::size_t i = 0; i < layers_.size(); ++i)
    out.emplace_back(layers_[i].slot, layers_[i].modules[formats[i]]);
  return out;
}

const Damage& FormatSearch::measured(std::size_t point) {
  // A measurement costs a pass over the data.
  const auto known = measured_.find(point);
  if (known != measured_.end()) return known->second;
  return measured_[point] = run({swaps(point)}).damages[0];
}

double FormatSearch::point_bits(std::size_t point) const {
  if (weights_ == 0) return 0;
  double bits = 0;
  const Formats formats = point_formats(point);
  for (std::size_t i = 0; i < layers_.size(); ++i)
    bits += static_cast<double>(layers_[i].weights) * planned_[i].scores[formats[i]].bits;
  return bits / weights_;
}

std::size_t FormatSearch::find_by_bits(double bits) const {
  const auto point = knapsack_->best(bits * weights_);
  if (!point) refuse_bits(bits, point_bits(0));
  return *point;
}

std::size_t FormatSearch::find_by_accuracy(double budget) {
  const auto drop = [&](std::size_t point) { return -measured(point).accuracy_change; };
  // 1e-12 allows for the rounding error of a difference of accuracies.
  const auto holds = [&](std::size_t point) { return drop(point) <= budget + 1e-12; };
  std::size_t low = 0, high = knapsack_->size() - 1;
  if (!holds(high)) high = knapsack_->size();
  FQ_CHECK(holds(high), kAuto,
           "accuracy_budget is {}, the formats of most bits lose {:.4f}: use a larger budget, or add the "
           "format none",
           budget, drop(high));
  // Invariant: `high` is within the budget.
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (holds(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return high;
}

QuantizationPlan FormatSearch::plan(std::size_t point) {
  QuantizationPlan out;
  out.layers = planned_;
  out.formats = options_.formats;
  const Formats formats = point_formats(point);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    out.layers[i].format = options_.formats[formats[i]];
    const Damage& damage = planned_[i].scores[formats[i]].damage;
    // The prediction adds the damage of layers that were measured alone.
    out.predicted.loss_change += damage.loss_change;
    out.predicted.accuracy_change += damage.accuracy_change;
    out.predicted.divergence += damage.divergence;
  }
  out.score = options_.score;
  out.effective_bits = point_bits(point);
  out.gap = knapsack_->gap();
  out.reference = report_.reference;
  out.measured = measured(point);
  out.samples = report_.samples;
  out.layer_runs = report_.runs;
  out.pass_runs = report_.pass_runs;
  return out;
}

bool FormatSearch::quantizes(std::size_t layer, std::size_t point) const {
  return changes(layer, point_formats(point)[layer]);
}

void FormatSearch::install(std::size_t point) const {
  for (const auto& [slot, module] : swaps(point)) slot->module = module;
}

}  // namespace fq::detail
