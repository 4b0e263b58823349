#include "fakequant/core/detail/stand_ins.h"

#include <utility>

#include "fakequant/core/detail/check.h"

namespace fq::detail {

void StandIns::set(const Variable& leaf, Tensor value) {
  FQ_CHECK(leaf.is_leaf() && value.shape() == leaf.shape(), "stand_ins",
           "{} cannot stand for the value of shape {} of a {}", value.describe(), to_string(leaf.shape()),
           leaf.is_leaf() ? "leaf" : "result");
  nodes_[leaf.node().get()] = Variable(std::move(value), leaf.requires_grad()).node();
}

const std::shared_ptr<Node>& StandIns::of(const std::shared_ptr<Node>& node) const noexcept {
  const auto& seen = outer_ != nullptr ? outer_->of(node) : node;
  const auto found = nodes_.find(seen.get());
  return found == nodes_.end() ? seen : found->second;
}

}  // namespace fq::detail
