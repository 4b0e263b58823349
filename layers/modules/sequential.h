#pragma once

/// Sequential: a chain of modules.
///
///     Sequential model;
///     model.add("fc1", std::make_shared<Linear>(784, 128)).add(make_relu());
///     model.add("fc2", std::make_shared<Linear>(128, 10));  // paths "fc1", "1", "fc2"
///
/// For branches, write a Module or use a Graph (layers/model/graph.h).

#include "fakequant/layers/modules/module.h"

namespace fq {

/// Runs each module on the output of the one before it. Without modules it returns its input. Children have
/// the given names, or their positions "0", "1", .. as names. The caller may keep and share the modules.
class Sequential : public Module {
 public:
  Sequential() = default;
  /// Adds named modules in order. Throws ArgumentError as `add`.
  explicit Sequential(std::vector<std::pair<std::string, std::shared_ptr<Module>>> modules);
  /// Appends a module and returns this object. Throws ArgumentError if the module is null, or if the name is
  /// already used, contains '/', or has an empty part between dots.
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
