#pragma once

/// StandIns: other values of leaves, on one thread.

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

}  // namespace fq::detail
