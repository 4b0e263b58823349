#pragma once

/// Runs a model without computing values.

#include <optional>
#include <unordered_set>

#include "fakequant/core/detail/leaf_scopes.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::detail {

/// While the scope lives, this thread sees the model in evaluation (or training) mode with its parameters on
/// `meta`. The scope only reads the model: other threads may evaluate it at the same time. Ranges that are
/// parameters keep their values, because grids are computed on `meta` too.
class MetaScope {
 public:
  explicit MetaScope(Module& model, bool training = false)
      : training_(context().training, training), call_cache_(context().call_cache, nullptr) {
    std::unordered_set<const Node*> ranges;
    for (const auto& [path, module] : model.named_modules())
      if (dynamic_cast<const TensorQuantizer*>(module) != nullptr)
        for (const auto& range : module->parameters()) ranges.insert(range.node().get());
    for (const auto& parameter : model.parameters()) {
      const Tensor value = parameter.tensor();
      const bool keeps_value = ranges.contains(parameter.node().get());
      stand_ins_.set(parameter,
                     keeps_value ? value : Tensor::empty(value.shape(), value.dtype(), Device::meta()));
    }
  }

 private:
  ScopedValue<std::optional<bool>> training_;
  ScopedValue<CallCache*> call_cache_;
  StandIns stand_ins_;
};

}  // namespace fq::detail
