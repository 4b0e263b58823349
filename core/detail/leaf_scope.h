#pragma once

/// LeafScope: who is told of the gradients of leaves as a backward pass completes them.

#include <functional>

namespace fq::detail {

struct Gradient;

/// While it lives, `Variable::backward` on this thread calls `ready` with each leaf once, as soon as the pass
/// has added all that it gives to the leaf's sum, while gradients of what comes before are still to be made.
/// Leaves that a pass within a pass (a checkpointed block) adds to are not told of. Scopes do not nest.
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
