#include "fakequant/train/ranks/sharded_optimizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/ranks/detail/collectives.h"

namespace fq {
namespace {

// Largest parameters first, each to the rank with the fewest elements so far. The result is the same on all
// ranks.
std::vector<int> assign_owners(const NamedParameters& parameters, int ranks) {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>{}, [&](auto i) { return parameters[i].second.numel(); });
  std::vector<std::int64_t> elements(static_cast<std::size_t>(ranks));  // of each rank
  std::vector<int> owner(parameters.size());
  for (const auto i : order) {
    const auto least = std::ranges::min_element(elements);
    owner[i] = static_cast<int>(least - elements.begin());
    *least += parameters[i].second.numel();
  }
  return owner;
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(std::shared_ptr<Communicator> ranks, const Module& model,
                                   const OptimizerOptions& options)
    : Optimizer(model.named_parameters(), options.learning_rate, options.weight_decay, {}, {}),
      ranks_(std::move(ranks)),
      owner_(assign_owners(parameters(), ranks_->size())) {
  NamedParameters own;
  for (std::size_t i = 0; i < owner_.size(); ++i)
    if (owner_[i] == ranks_->rank()) own.push_back(parameters()[i]);
  own_ = make_optimizer(model, options, own);
}

void ShardedOptimizer::update(const std::vector<std::size_t>& indices, double gradient_scale) {
  own_->set_learning_rate(learning_rate());
  // Only the own parameters are in own_, so that only their state is in memory.
  own_->step(gradient_scale);
  StateDict own;
  for (const auto i : indices)
    if (owner_[i] == ranks_->rank()) own.set(parameters()[i].first, parameters()[i].second.tensor());
  const auto all = detail::gather_states(*ranks_, own);
  for (const auto i : indices) {
    if (owner_[i] == ranks_->rank()) continue;
    Variable parameter = parameters()[i].second;
    parameter.mutable_tensor().copy_from(
        all[static_cast<std::size_t>(owner_[i])].at(parameters()[i].first).to(parameter.device()));
  }
}

StateDict ShardedOptimizer::state_dict() const {
  // The whole state on every rank: checkpoints do not depend on the number of ranks.
  StateDict out = Optimizer::state_dict();
  const auto all = detail::gather_states(*ranks_, own_->state_dict());
  for (std::size_t i = 0; i < owner_.size(); ++i) {
    const auto& name = parameters()[i].first;
    const StateDict states = all[static_cast<std::size_t>(owner_[i])].sub(name);
    for (const auto& [state, tensor] : states.tensors()) out.set(name + "/" + state, tensor);
  }
  return out;
}

void ShardedOptimizer::load_state(const StateDict& state) {
  // The optimizer of this class has step counts only; own_ has the states of its parameters.
  StateDict own, counts;
  auto steps = nlohmann::json::array();
  const auto& all_steps = state.attribute("steps");
  for (std::size_t i = 0; i < owner_.size(); ++i) {
    if (owner_[i] != ranks_->rank()) continue;
    own.merge(state.sub(parameters()[i].first), parameters()[i].first);
    if (all_steps.is_array() && i < all_steps.size()) steps.push_back(all_steps[i]);
  }
  for (auto* part : {&own, &counts}) part->set_attribute("type", state.attribute("type"));
  own.set_attribute("steps", std::move(steps));
  counts.set_attribute("steps", all_steps);
  own_->load_state(own);
  Optimizer::load_state(counts);
}

std::int64_t ShardedOptimizer::state_bytes() const {
  std::int64_t bytes = 0;
  const StateDict states = own_->state_dict();
  for (const auto& [name, tensor] : states.tensors()) bytes += tensor.nbytes();
  return bytes;
}

}  // namespace fq
