#pragma once

/// Scopes that change how leaves of the tape behave on one thread: StandIns replaces values, LeafScope
/// reports gradients.

#include <functional>
#include <memory>
#include <unordered_map>

#include "fakequant/core/context.h"
#include "fakequant/core/variable.h"

namespace fq::detail {

/// Replaces leaf values on this thread. During the scope, every handle of a replaced leaf reads and writes
/// the replacement, including its gradient and cached forms. The leaf itself is not written, so other
/// threads may read it. Handles keep their identity and refer to the leaf again after the scope. Scopes
/// nest, each within one block.
class StandIns {
 public:
  StandIns() : outer_(context().stand_ins), in_force_(context().stand_ins, this) {}

  /// Gives a leaf another value of the same shape. If the leaf requires a gradient, the replacement has its
  /// own.
  void set(const Variable& leaf, Tensor value);
  /// Returns the replacement of a node, or the node itself if there is none.
  [[nodiscard]] const std::shared_ptr<Node>& of(const std::shared_ptr<Node>& node) const noexcept;

 private:
  std::unordered_map<const Node*, std::shared_ptr<Node>> nodes_;
  const StandIns* outer_;
  ScopedValue<const StandIns*> in_force_;
};

struct Gradient;

/// While a LeafScope exists, `Variable::backward` on this thread calls `ready` once for each leaf, as soon as
/// the gradient of the leaf is complete. Gradients of earlier operators may still be missing then. Leaves of
/// a backward pass inside this one (a checkpointed block) are not reported. Scopes do not nest.
class LeafScope {
 public:
  using Ready = std::function<void(const Gradient& leaf)>;
  explicit LeafScope(Ready ready);
  ~LeafScope();
  LeafScope(const LeafScope&) = delete;  // bound to its block
  LeafScope& operator=(const LeafScope&) = delete;

 private:
  Ready ready_;
};

}  // namespace fq::detail
