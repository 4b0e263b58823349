#pragma once

/// A model without computation; not a public header.

#include <utility>
#include <vector>

#include "fakequant/layers/module.h"

namespace fq::detail {

/// Puts a model into evaluation mode with its parameters on `meta`, and back when it ends.
class MetaScope {
 public:
  explicit MetaScope(Module& model) {
    for (auto& [path, module] : model.named_modules()) modes_.emplace_back(module, module->training());
    model.eval();
    for (auto& parameter : model.parameters()) {
      values_.emplace_back(parameter, parameter.tensor());
      parameter.set_tensor(Tensor::empty(parameter.shape(), parameter.tensor().dtype(), Device::meta()));
    }
  }
  ~MetaScope() {
    for (auto& [parameter, value] : values_) parameter.set_tensor(value);
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
