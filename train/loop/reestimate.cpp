#include "fakequant/train/loop/reestimate.h"

#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/modules/detail/module_scopes.h"
#include "fakequant/layers/modules/norm.h"

namespace fq {
namespace {

std::vector<BatchNorm*> norms_of(Module& model) {
  std::vector<BatchNorm*> out;
  for (const auto& [name, module] : model.named_modules())
    if (auto* norm = dynamic_cast<BatchNorm*>(module); norm != nullptr && !norm->frozen())
      out.push_back(norm);
  return out;
}

/// Norms train while it lives, each by its own momentum again afterwards.
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

std::int64_t live_batch_norms(Module& model) { return std::int64_t(norms_of(model).size()); }

std::int64_t reestimate_batch_norm(Module& model, DataLoader& data, std::int64_t batches) {
  FQ_CHECK(batches >= 1 && batches <= data.batches_per_epoch(), "reestimate_batch_norm",
           "{} batches: use 1 to the {} of an epoch", batches, data.batches_per_epoch());
  const detail::EvaluationMode evaluating(model);
  const NoGrad no_grad;
  const auto norms = norms_of(model);
  TrainingNorms training(norms);
  const Device device = model.device();
  for (std::int64_t done = 0; done < batches;) {
    const auto batch = data.next();
    if (!batch) continue;
    training.weigh(1 / double(++done));
    (void)model(Variable(batch->x.to(device)));
  }
  return std::int64_t(norms.size());
}

}  // namespace fq
