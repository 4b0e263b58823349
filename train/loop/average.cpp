#include "fakequant/train/loop/average.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/detail/updates.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/layers/modules/norm.h"
#include "fakequant/train/detail/whole_number.h"
#include "fakequant/train/loop/detail/saved_values.h"

namespace fq {
namespace {

std::vector<BatchNorm*> unfrozen_norms(Module& model) {
  std::vector<BatchNorm*> out;
  for (const auto& [name, module] : model.named_modules())
    if (auto* norm = dynamic_cast<BatchNorm*>(module); norm != nullptr && !norm->frozen())
      out.push_back(norm);
  return out;
}

/// Sets norms to training mode, and restores their momenta at the end of the block.
class TrainingNorms {
 public:
  explicit TrainingNorms(std::vector<BatchNorm*> norms) : norms_(std::move(norms)) {
    for (auto* norm : norms_) {
      momenta_.push_back(norm->momentum());
      norm->train();
    }
  }
  ~TrainingNorms() {
    for (std::size_t i = 0; i < norms_.size(); ++i) norms_[i]->set_momentum(momenta_[i]);
  }
  TrainingNorms(const TrainingNorms&) = delete;  // tied to its block
  TrainingNorms& operator=(const TrainingNorms&) = delete;

  void weigh(double share) {
    for (auto* norm : norms_) norm->set_momentum(share);
  }

 private:
  std::vector<BatchNorm*> norms_;
  std::vector<double> momenta_;
};

}  // namespace

WeightAverage::WeightAverage(const Module& model, double decay) : decay_(decay) {
  FQ_CHECK(decay >= 0 && decay < 1, "weight_average", "the decay is {}: use 0 to less than 1", decay);
  std::unordered_map<const void*, std::size_t> known;
  // A tied weight has one average under several names: averaging it twice would be wrong.
  const auto is_new = [&](const std::string& name, const Tensor& value) {
    const auto [at, added] = known.emplace(value.raw(), averages_.size());
    names_.emplace_back(name, at->second);
    if (added) averages_.push_back(value.clone());
    return added;
  };
  for (auto& [name, value] : detail::saved_parameters(model))
    if (is_new("parameters/" + name, value.tensor())) parameters_.push_back(value);
  for (auto& [name, value] : model.named_buffers())
    // Counters and other integers have no average.
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
  // The warm-up of the decay is the one of TensorFlow's ExponentialMovingAverage with num_updates.
  ops::move_towards(averages_, values(), 1 - std::min(decay_, (1 + t) / (10 + t)));
}

void WeightAverage::swap() {
  // Exchanges contents, not handles: optimizer and captured passes keep their addresses.
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
  // All names are checked before the first copy.
  for (const auto& [name, at] : names_) (void)state.at(name, averages_[at].shape(), averages_[at].dtype());
  for (const auto& [name, at] : names_) averages_[at].copy_from(state.at(name));
  updates_ = updates;
}

std::int64_t live_batch_norms(Module& model) { return std::int64_t(unfrozen_norms(model).size()); }

std::int64_t reestimate_batch_norm(Module& model, DataLoader& data, std::int64_t batches) {
  FQ_CHECK(batches >= 1 && batches <= data.batches_per_epoch(), "reestimate_batch_norm",
           "{} batches: use 1 to the {} of an epoch", batches, data.batches_per_epoch());
  const detail::EvaluationMode evaluating(model);
  const NoGrad no_grad;
  const auto norms = unfrozen_norms(model);
  TrainingNorms training(norms);
  const Device device = model.device();
  for (std::int64_t done = 0; done < batches;) {
    const auto batch = data.next();
    // The end of an epoch; the loader continues with the next one.
    if (!batch) continue;
    // Momentum 1 / n in batch n makes the running statistics the mean over the batches.
    training.weigh(1 / double(++done));
    (void)model(Variable(batch->x.to(device)));
  }
  return std::int64_t(norms.size());
}

}  // namespace fq
