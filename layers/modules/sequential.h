#pragma once

/// Sequential: modules one after the other.
///
///     Sequential model;
///     model.add("fc1", std::make_shared<Linear>(784, 128)).add(make_relu());
///     model.add("fc2", std::make_shared<Linear>(128, 10));  // paths "fc1", "1", "fc2"
///
/// For branches write a Module of one's own or a Graph (layers/model/graph.h).

#include "fakequant/layers/modules/module.h"

namespace fq {

/// Each module takes the output of the one before it; without modules the input comes out. Children are named
/// as given, or by their place: "0", "1", .. The modules are shared with whoever else holds them.
class Sequential : public Module {
 public:
  Sequential() = default;
  /// Named modules in their order. Throws ArgumentError as `add`.
  explicit Sequential(std::vector<std::pair<std::string, std::shared_ptr<Module>>> modules);
  /// Puts a module at the end and returns this, to go on adding. Throws ArgumentError for null and for a name
  /// that is taken, has a '/', or has an empty part between dots.
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
