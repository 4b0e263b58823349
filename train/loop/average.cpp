#include "fakequant/train/loop/average.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/detail/updates.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/detail/whole_number.h"
#include "fakequant/train/loop/detail/saved_values.h"

namespace fq {

WeightAverage::WeightAverage(const Module& model, double decay) : decay_(decay) {
  FQ_CHECK(decay >= 0 && decay < 1, "weight_average", "the decay is {}: use 0 to less than 1", decay);
  std::unordered_map<const void*, std::size_t> known;
  const auto is_new = [&](const std::string& name, const Tensor& value) {
    const auto [at, added] = known.emplace(value.raw(), averages_.size());
    names_.emplace_back(name, at->second);
    if (added) averages_.push_back(value.clone());
    return added;
  };
  for (auto& [name, value] : detail::saved_parameters(model))
    if (is_new("parameters/" + name, value.tensor())) parameters_.push_back(value);
  for (auto& [name, value] : model.named_buffers())
    if ((value.dtype() == DType::f32 || value.dtype() == DType::f64) && is_new("buffers/" + name, value))
      buffers_.push_back(value);
}

std::vector<Tensor> WeightAverage::values() const {
  std::vector<Tensor> out;
  out.reserve(averages_.size());
  for (const auto& parameter : parameters_) out.push_back(parameter.tensor());
  out.insert(out.end(), buffers_.begin(), buffers_.end());
  return out;
}

void WeightAverage::update() {
  FQ_CHECK(!swapped_, "weight_average", "the averages are in the model: swap back before training on");
  const auto t = static_cast<double>(++updates_);
  ops::move_towards(averages_, values(), 1 - std::min(decay_, (1 + t) / (10 + t)));
}

void WeightAverage::swap() {
  auto live = values();
  ops::swap_contents(live, averages_);
  swapped_ = !swapped_;
}

StateDict WeightAverage::state_dict() const {
  StateDict out;
  for (const auto& [name, at] : names_) out.set(name, averages_[at]);
  out.set_attribute("updates", updates_);
  return out;
}

void WeightAverage::load_state(const StateDict& state) {
  const std::int64_t updates = detail::whole_number(state, "updates", "weight_average");
  FQ_CHECK(state.size() == names_.size(), "weight_average",
           "the state has {} averages, the model {} values: use the state of the same model", state.size(),
           names_.size());
  for (const auto& [name, at] : names_) (void)state.at(name, averages_[at].shape(), averages_[at].dtype());
  for (const auto& [name, at] : names_) averages_[at].copy_from(state.at(name));
  updates_ = updates;
}

}  // namespace fq
