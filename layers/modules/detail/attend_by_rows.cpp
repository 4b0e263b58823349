#include "fakequant/layers/modules/detail/attend_by_rows.h"

#include <algorithm>

#include "fakequant/core/context.h"
#include "fakequant/core/detail/join.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/core/tape.h"

namespace fq::detail {
namespace {

using Heads = std::vector<Variable>;  // q, k, v

struct RowBlock {
  std::int64_t row, end, seen;
};

std::vector<RowBlock> row_blocks(std::int64_t queries, std::int64_t keys) {
  std::vector<RowBlock> out;
  const std::int64_t before = keys - queries;  // seen by all
  for (std::int64_t row = 0, end = 0; row < queries; row = end) {
    end = std::min(queries, ((before + row) / kRowsTogether + 1) * kRowsTogether - before);
    out.push_back({row, end, before + end});
  }
  return out;
}

Heads heads_of(const Heads& all, const RowBlock& block) {
  return {ops::slice(all[0], 2, block.row, block.end), ops::slice(all[1], 2, 0, block.seen),
          ops::slice(all[2], 2, 0, block.seen)};
}

/// The sum of gradients by keys, which each block has of fewer than the one before.
class KeyGradients {
 public:
  void add(const Tensor& dy) {
    if (!dy.defined()) return;
    if (seen_.defined()) {
      rest_.insert(rest_.begin(), cut(seen_, 2, dy.dim(2), seen_.dim(2)));
      seen_ = cut(seen_, 2, 0, dy.dim(2));
      accumulate(seen_, dy);
    } else {
      seen_ = dy;
    }
  }
  [[nodiscard]] Tensor sum() {
    if (!seen_.defined()) return {};
    rest_.insert(rest_.begin(), seen_);
    return join(rest_, 2);
  }

 private:
  Tensor seen_;
  std::vector<Tensor> rest_;
};

/// Gradients of one block's heads.
std::vector<Tensor> block_gradients(const Heads& given, const AttendHeads& attend, const Tensor& dy) {
  const Variable y = attend(given);
  if (y.requires_grad()) y.backward(dy);
  return {given[0].grad(), given[1].grad(), given[2].grad()};
}

}  // namespace

Variable attend_by_rows(const Variable& q, const Variable& k, const Variable& v, const AttendHeads& attend) {
  const Heads inputs{q, k, v}, constants{q.detach(), k.detach(), v.detach()};
  const auto blocks = row_blocks(q.dim(2), k.dim(2));
  Heads parts;
  Variable y;
  {
    const NoGrad none;
    for (const auto& block : blocks) parts.push_back(attend(heads_of(constants, block)));
    y = ops::concat(parts, 2);
  }
  if (!needs_grad(inputs)) return y;
  const std::vector<bool> wanted{q.requires_grad(), k.requires_grad(), v.requires_grad()};
  const auto backward = [=, path = module_path(), numbers = backward_type()](const Tensor& dy) {
    const ScopedValue records(context().records, true);
    const ScopedValue place(context().path, path);
    const BackwardScope products(numbers);
    std::vector<Tensor> rows;
    KeyGradients keys[2];
    for (std::size_t b = blocks.size(); b-- > 0;) {
      Heads given;
      for (const auto& head : heads_of(constants, blocks[b])) {
        given.push_back(head.detach());
        given.back().set_requires_grad(wanted[given.size() - 1]);
      }
      const auto found = block_gradients(given, attend, cut(dy, 2, blocks[b].row, blocks[b].end));
      if (wanted[0]) rows.insert(rows.begin(), found[0]);
      for (std::size_t i = 0; i < 2; ++i) keys[i].add(found[i + 1]);
    }
    return std::vector<Tensor>{wanted[0] ? join(rows, 2) : Tensor(), keys[0].sum(), keys[1].sum()};
  };
  return record("attend_by_rows", y.value(), inputs, backward);
}

}  // namespace fq::detail
