#pragma once

/// What changes in a model between training steps: quantizers that start, ranges and statistics that freeze.

#include <cstdint>
#include <vector>

namespace fq {
class BatchNorm;
class Module;
class TensorQuantizer;
}  // namespace fq

namespace fq::detail {

/// The quantizers that quantize and the batch norms that are not frozen, found once.
class Switches {
 public:
  explicit Switches(Module& model);

  struct Phase {
    bool quantizing = true, running = false, bn_frozen = false;
    double amax_momentum = 0.01;
    bool operator==(const Phase&) const = default;
  };
  void set(const Phase& phase);
  /// As the model is deployed.
  void reset() { set({}); }

 private:
  std::vector<TensorQuantizer*> quantizers_;
  std::vector<TensorQuantizer*> activations_;
  std::vector<BatchNorm*> norms_;
};

/// A phase of training while it lives; saving and evaluating see the deployed model.
class PhaseScope {
 public:
  PhaseScope(Switches& switches, const Switches::Phase& phase) : switches_(switches) { switches_.set(phase); }
  ~PhaseScope() { switches_.reset(); }
  PhaseScope(const PhaseScope&) = delete;  // tied to its block
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Switches& switches_;
};

}  // namespace fq::detail
