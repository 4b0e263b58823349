#include "fakequant/train/loop/detail/range_policy.h"

#include <algorithm>

#include <fmt/format.h>

#include "fakequant/core/log.h"
#include "fakequant/core/numerics/detail/grid_numbers.h"
#include "fakequant/layers/modules/norm.h"
#include "fakequant/layers/quantize.h"

namespace fq::detail {
namespace {

constexpr float kLeast = 0x1p-23F;  // smallest range that has a scale

/// Updates a quantizer only if something changes: an update rebuilds its grid.
void set_running(TensorQuantizer& quantizer, const RangePolicy::Phase& phase) {
  const QuantParams& now = quantizer.params();
  // Ranges from each input have nothing to run.
  const bool running = phase.running && now.has_fixed_range();
  if (now.running == running && now.momentum == phase.amax_momentum) return;
  quantizer.update([&](QuantParams& params) {
    params.running = running;
    params.momentum = phase.amax_momentum;
  });
}

/// Limits `now` and returns whether it changed. Does not limit a range that is still zero: its quantizer sets
/// it from the first values.
bool limit(float& now, float before) {
  if (before <= least_amax) return false;
  // NaN fails both comparisons below and stays.
  const float least = std::max(before / 2, kLeast), most = 2 * std::max(before, kLeast);
  if (!(now < least) && !(now > most)) return false;
  now = now < least ? least : most;
  return true;
}

}  // namespace

RangePolicy::RangePolicy(Module& model, const TrainerOptions& options) : options_(options) {
  if (options.ranges.amax == AmaxMode::learned) learn_ranges(model, options.ranges.amax_gradient);
  if (options.ranges.learn_weight_ranges) learn_weight_ranges(model, options.ranges.amax_gradient);
  // Running ranges are for activations: a weight's range follows the weight.
  const auto weights = weight_quantizers(model);
  for (const auto& [name, quantizer, aliases] : named_quantizers(model)) {
    if (const Variable& amax = quantizer->range().learned(); amax.defined())
      learned_.push_back({name + ".amax", amax});
    if (!quantizer->params().enabled || !quantizer->quantizing()) continue;
    quantizers_.push_back(quantizer);
    if (!weights.contains(quantizer)) activations_.push_back(quantizer);
  }
  for (const auto& [name, module] : model.named_modules())
    if (auto* norm = dynamic_cast<BatchNorm*>(module); norm != nullptr && !norm->frozen())
      norms_.push_back(norm);
}

RangePolicy::Phase RangePolicy::phase(std::int64_t step) const {
  const auto passed = [step](std::int64_t limit) { return limit >= 0 && step >= limit; };
  return {.quantizing = step >= options_.ranges.quant_start,
          .running = options_.ranges.amax == AmaxMode::running && !passed(options_.ranges.freeze_amax_after),
          .bn_frozen = passed(options_.batch_norm.freeze_bn_after),
          .amax_momentum = options_.ranges.amax_momentum};
}

void RangePolicy::set(const Phase& phase) const {
  for (auto* quantizer : quantizers_) quantizer->set_quantizing(phase.quantizing);
  for (auto* quantizer : activations_) set_running(*quantizer, phase);
  for (auto* norm : norms_) norm->freeze(phase.bn_frozen);
}

void RangePolicy::begin_step() {
  for (auto& range : learned_) range.before = range.amax.tensor().to_vector<float>();
}

void RangePolicy::end_step() {
  for (auto& range : learned_) {
    auto now = range.amax.tensor().to_vector<float>();
    bool changed = false;
    for (std::size_t i = 0; i < now.size(); ++i) changed |= limit(now[i], range.before[i]);
    // Writes only on a change: a write increments the version, which discards cached codes.
    if (!changed) continue;
    ++limited_;
    range.was_limited = true;
    range.amax.mutable_tensor().copy_from(Tensor::from(now, range.amax.shape()).to(range.amax.device()));
  }
}

void RangePolicy::warn_of_limits() const {
  if (limited_ == 0) return;
  const auto was_limited = [](const LearnedRange& range) { return range.was_limited; };
  const auto ranges = std::ranges::count_if(learned_, was_limited);
  const std::string others = ranges > 1 ? fmt::format(" and {} others", ranges - 1) : "";
  log(LogLevel::warning, fmt::format("[train] steps would have more than halved or doubled learned "
                                     "ranges {} times ({}{}): the ranges were limited. Use a smaller "
                                     "learning rate",
                                     limited_, std::ranges::find_if(learned_, was_limited)->name, others));
}

}  // namespace fq::detail
