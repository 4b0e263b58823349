#include "fakequant/train/loop/detail/parameter_update.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "fakequant/core/error.h"
#include "fakequant/core/profile.h"
#include "fakequant/core/random.h"
#include "fakequant/train/loop/detail/finite.h"
#include "fakequant/train/ranks/sharded_optimizer.h"

namespace fq::detail {
namespace {

// Largest number of elements of a small parameter.
constexpr std::int64_t kSmall = 4096;
constexpr std::uint64_t kAdapters = std::uint64_t{1} << 62;  // random step that no batch uses

std::unique_ptr<LowRankAdapters> make_adapters(Module& model, const TrainerOptions& options) {
  if (options.low_rank.rank == 0) return nullptr;
  // Adapters have the same start in every run with this seed.
  const RandomScope random(options.seed, kAdapters);
  return std::make_unique<LowRankAdapters>(model, options.low_rank);
}

std::unique_ptr<Optimizer> make_run_optimizer(const Module& parameters, const TrainerOptions& options) {
  OptimizerOptions own = options.optimizer;
  if (options.ranges.amax_rate != 1) own.rules.push_back({"*.amax", std::nullopt, options.ranges.amax_rate});
  if (!options.distributed.shard_optimizer) return make_optimizer(parameters, own);
  return std::make_unique<ShardedOptimizer>(options.distributed.ranks, parameters, own);
}

}  // namespace

ParameterUpdate::ParameterUpdate(const RunInputs& inputs, const RunProgress& progress, RangePolicy& ranges)
    : inputs_(inputs),
      progress_(progress),
      ranges_(ranges),
      adapters_(make_adapters(*inputs.model, inputs.options)),
      optimizer_(make_run_optimizer(adapters_ ? adapters_->parameters() : *inputs.model, inputs.options)),
      parameters_((adapters_ ? adapters_->parameters() : *inputs.model).parameters()) {
  if (const double decay = inputs.options.update.average_decay; decay != 0)
    average_.emplace(*inputs.model, decay);
}

void ParameterUpdate::apply(double scale) {
  const ProfileScope profile("optimizer");
  const double clip_norm = inputs_.options.update.clip_norm;
  if (adapters_) adapters_->take_gradients();
  if (clip_norm > 0)
    // clip_factor throws for a norm that is not finite, which replaces check_gradients.
    scale *= clip_factor(gradient_norm(parameters_) * scale, clip_norm);
  else
    check_gradients();
  optimizer_->set_learning_rate(progress_.learning_rate());
  ranges_.begin_step();
  optimizer_->step(scale);
  if (adapters_) adapters_->merge();
  ranges_.end_step();
  optimizer_->zero_grad();
  if (average_) average_->update();
}

void ParameterUpdate::zero_gradients() {
  for (auto& parameter : inputs_.model->parameters()) parameter.zero_grad();
  for (auto& parameter : parameters_) parameter.zero_grad();
}

/// Checks only the small parameters, if there are any. The gradients of biases and norms sum up all gradients
/// that pass through their layer. Does not wait for a GPU.
void ParameterUpdate::check_gradients() const {
  // On a GPU the check would wait for the device in each step.
  if (!inputs_.model->device().is_cpu()) return;
  std::vector<Variable> small;
  std::ranges::copy_if(parameters_, std::back_inserter(small),
                       [](const Variable& parameter) { return parameter.numel() <= kSmall; });
  if (std::isfinite(gradient_norm(small.empty() ? parameters_ : small))) return;
  std::vector<StateDict::Entry> gradients;
  for (const auto& [name, value] : (adapters_ ? adapters_->parameters() : *inputs_.model).named_parameters())
    if (value.grad().defined()) gradients.emplace_back("the gradient of " + name, value.grad());
  // The norm can overflow without an infinite gradient: then there is no error.
  if (const auto found = find_not_finite(gradients))
    throw NumericError(fmt::format("[train] {}: use a smaller learning rate, or clip_norm{}", found->text(),
                                   progress_.place()));
}

void ParameterUpdate::save(StateDict& checkpoint) const {
  checkpoint.merge(optimizer_->state_dict(), "optimizer");
  if (adapters_) checkpoint.merge(adapters_->state_dict(), "adapters");
}

void ParameterUpdate::load(const StateDict& checkpoint) {
  optimizer_->load_state(checkpoint.sub("optimizer"));
  if (adapters_) adapters_->load_state(checkpoint.sub("adapters"));
}

}  // namespace fq::detail
