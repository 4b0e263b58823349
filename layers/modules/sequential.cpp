#include "fakequant/layers/modules/sequential.h"

namespace fq {

Sequential::Sequential(std::vector<std::pair<std::string, std::shared_ptr<Module>>> modules) {
  for (auto& [name, module] : modules) add(std::move(name), std::move(module));
}

Sequential& Sequential::add(std::shared_ptr<Module> module) {
  return add(std::to_string(modules_.size()), std::move(module));
}

Sequential& Sequential::add(std::string name, std::shared_ptr<Module> module) {
  modules_.push_back(add_module(std::move(name), std::move(module)));
  return *this;
}

Variable Sequential::forward(const Variable& x) {
  Variable y = x;
  for (const auto& module : modules_) y = module(y);
  return y;
}

}  // namespace fq
