#pragma once

/// A model without computation.

#include <unordered_set>
#include <utility>
#include <vector>

#include "fakequant/core/tape.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::detail {

/// Puts a model into evaluation (or training) mode with its parameters on `meta`, and back when it ends.
/// Ranges that are parameters stay: grids are computed on `meta` too.
class MetaScope {
 public:
  explicit MetaScope(Module& model, bool training = false) {
    std::unordered_set<const Node*> ranges;
    for (auto& [path, module] : model.named_modules()) {
      modes_.emplace_back(module, module->training());
      if (dynamic_cast<TensorQuantizer*>(module) == nullptr) continue;
      for (const auto& range : module->parameters()) ranges.insert(range.node().get());
    }
    model.train(training);
    for (auto& parameter : model.parameters()) {
      if (ranges.contains(parameter.node().get())) continue;
      values_.emplace_back(parameter, parameter.tensor());
      parameter.set_tensor(Tensor::empty(parameter.shape(), parameter.tensor().dtype(), Device::meta()));
    }
  }
  ~MetaScope() {
    for (auto& [parameter, value] : values_) {
      parameter.set_tensor(value);
      parameter.node()->quantized.clear();  // what was made of the abstract value
      parameter.node()->as_float.reset();
    }
    for (auto& [module, training] : modes_)
      module->train(training);  // parents first: children have the last word
  }
  MetaScope(const MetaScope&) = delete;  // tied to its block
  MetaScope& operator=(const MetaScope&) = delete;

 private:
  std::vector<std::pair<Module*, bool>> modes_;
  std::vector<std::pair<Variable, Tensor>> values_;
};

}  // namespace fq::detail
