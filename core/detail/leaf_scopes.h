#pragma once

/// Scopes that change how leaves of the tape behave on one thread: StandIns replaces values, LeafScope reports
/// gradients.

#include <functional>
#include <memory>
#include <unordered_map>

#include "fakequant/core/context.h"
#include "fakequant/core/variable.h"

namespace fq::detail {

/// While it lives, every handle of a leaf that has a stand-in reads and writes that on this thread, gradient
/// and kept forms included. Nothing of the leaf itself is written, so that other threads may read it. Handles
/// keep their identity: behind the scope they are those of the leaf. Scopes nest, each within one block.
class StandIns {
 public:
  StandIns() : outer_(context().stand_ins), in_force_(context().stand_ins, this) {}

  /// Gives a leaf another value, of its shape; it takes a gradient, of its own, where the leaf takes one.
  void set(const Variable& leaf, Tensor value);
  /// What stands for a node; the node itself where nothing does.
  [[nodiscard]] const std::shared_ptr<Node>& of(const std::shared_ptr<Node>& node) const noexcept;

 private:
  std::unordered_map<const Node*, std::shared_ptr<Node>> nodes_;
  const StandIns* outer_;
  ScopedValue<const StandIns*> in_force_;
};

struct Gradient;

/// While a LeafScope exists, `Variable::backward` on this thread calls `ready` once for each leaf, as soon as the
/// gradient of the leaf is complete. Gradients of earlier operators may still be missing then. Leaves of a
/// backward pass inside this one (a checkpointed block) are not reported. Scopes do not nest.
class LeafScope {
 public:
  using Ready = std::function<void(const Gradient& leaf)>;
  explicit LeafScope(Ready ready);
  ~LeafScope();
  LeafScope(const LeafScope&) = delete;  // in force where it is
  LeafScope& operator=(const LeafScope&) = delete;

 private:
  Ready ready_;
};

}  // namespace fq::detail
