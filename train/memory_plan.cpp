#include "fakequant/train/memory_plan.h"

#include <mutex>
#include <utility>
#include <vector>

#include "fakequant/core/device.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/layers/model/detail/meta_scope.h"
#include "fakequant/layers/modules/quant_modules.h"

namespace fq {
namespace {

/// Returns the growth of the memory in use on `meta` since the last call.
class Growth {
 public:
  std::int64_t operator()() { return used() - std::exchange(last_, used()); }
  [[nodiscard]] static std::int64_t used() { return memory_stats(Device::meta()).in_use; }

 private:
  std::int64_t last_ = used();
};

std::vector<Variable> weight_codes(Module& model) {
  std::vector<Variable> out;
  for (const auto& [path, module] : model.named_modules()) {
    auto* layer = dynamic_cast<QuantModule*>(module);
    if (layer != nullptr && layer->weight_quantizer() != nullptr)
      out.push_back(layer->weight_quantizer()->weight(layer->quantized_weight()));
  }
  return out;
}

/// Returns the value that the backward pass begins at, and its gradient (undefined for a scalar).
std::pair<Variable, Tensor> objective(const Variable& y) {
  const Variable floats = y.as_float();
  if (y.rank() != 2 || y.dim(1) < 2)
    return {floats, Tensor::empty(y.shape(), floats.tensor().dtype(), y.device())};
  return {ops::cross_entropy(y, Tensor::empty({y.dim(0)}, DType::i64, y.device())), {}};
}

}  // namespace

MemoryPlan plan_memory(Module& model, const Shape& input_shape, const OptimizerOptions& options) {
  static std::mutex counting;  // `meta` is counted for all threads together
  const std::scoped_lock lock(counting);
  const std::int64_t before = Growth::used();
  Growth growth;
  MemoryPlan plan;
  // This thread sees the parameters on `meta`, where operators compute shapes only. Each value below is the
  // growth since the step before: the order of the lines matters.
  const detail::MetaScope meta_scope(model, true);
  plan.parameters = growth();
  const auto optimizer = make_optimizer(model, options);
  plan.optimizer_state = growth();
  // Held until the end, as the caches of the quantizers hold them in training.
  const auto codes = weight_codes(model);
  plan.weight_codes = growth();
  const Tensor input = Tensor::empty(input_shape, DType::f32, Device::meta());
  plan.input = growth();
  reset_peak_memory(Device::meta());
  {
    const Variable output = model(Variable(input));
    const auto [loss, seed] = objective(output);
    plan.saved_activations = growth();
    if (loss.requires_grad()) loss.backward(seed);
  }
  // The backward pass allocates the gradients and frees the saved activations.
  plan.gradients = growth() + plan.saved_activations;
  plan.peak = memory_stats(Device::meta()).peak - before;
  return plan;
}

}  // namespace fq
