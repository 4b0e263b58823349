#pragma once

/// Sequential: modules one after the other.

#include "fakequant/layers/modules/module.h"

namespace fq {

/// Children are named as given, or "0", "1", ..
class Sequential : public Module {
 public:
  Sequential() = default;
  explicit Sequential(std::vector<std::pair<std::string, std::shared_ptr<Module>>> modules);
  Sequential& add(std::shared_ptr<Module> module);
  Sequential& add(std::string name, std::shared_ptr<Module> module);
  [[nodiscard]] std::string type() const override { return "sequential"; }

 protected:
  Variable forward(const Variable& x) override;
  using Module::forward;

 private:
  std::vector<Child<Module>> modules_;
};

}  // namespace fq
