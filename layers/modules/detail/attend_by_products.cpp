#include "fakequant/layers/modules/detail/attend_by_products.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "fakequant/core/context.h"
#include "fakequant/core/detail/moves.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/core/tape.h"
#include "fakequant/core/trace.h"
#include "fakequant/core/variable.h"
#include "fakequant/layers/modules/checkpoint.h"

namespace fq::detail {
namespace {

/// Causal attention of {q, k, v}. The last query sees all keys, each query before it one key less.
using AttendHeads = std::function<Variable(const std::vector<Variable>& heads)>;

/// Number of queries in one block of [N, H, L, D].
constexpr std::int64_t kRowsTogether = 128;

using Heads = std::vector<Variable>;  // q, k, v

// Queries [row, end) and the number of keys that the last of them sees.
struct RowBlock {
  std::int64_t row, end, seen;
};

std::vector<RowBlock> row_blocks(std::int64_t queries, std::int64_t keys) {
  std::vector<RowBlock> out;
  const std::int64_t before = keys - queries;  // keys that every query sees
  for (std::int64_t row = 0, end = 0; row < queries; row = end) {
    // Blocks end at multiples of kRowsTogether of the number of keys, also if a cache holds earlier keys.
    end = std::min(queries, ((before + row) / kRowsTogether + 1) * kRowsTogether - before);
    out.push_back({row, end, before + end});
  }
  return out;
}

// q: [N, H, L, D], k and v: [N, K, S, D]. Slices along the axis of positions.
Heads block_heads(const Heads& all, const RowBlock& block) {
  return {ops::slice(all[0], 2, block.row, block.end), ops::slice(all[1], 2, 0, block.seen),
          ops::slice(all[2], 2, 0, block.seen)};
}

/// Sums gradients of keys. Each block covers fewer keys than the block before it.
class KeyGradients {
 public:
  void add(const Tensor& dy) {
    if (!dy.defined()) return;
    if (seen_.defined()) {
      // Keys beyond this block get no more gradient, so they are set aside and not added again and again.
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

/// Returns the gradients of one block's heads.
std::vector<Tensor> block_gradients(const Heads& given, const AttendHeads& attend, const Tensor& dy) {
  const Variable y = attend(given);
  if (y.requires_grad()) y.backward(dy);
  return {given[0].grad(), given[1].grad(), given[2].grad()};
}

/// Runs `attend` on blocks of queries, each with the keys up to its last query, and concatenates the results:
/// [N, H, L, E]. Blocks end where the number of visible keys is a multiple of `kRowsTogether`, and at the
/// last query. The number of keys must not be below the number of queries.
///
/// Backward keeps only q, k and v and runs a block again for its gradients. `attend` must not change state,
/// and must not read state that changes before the backward pass.
Variable attend_by_rows(const Variable& q, const Variable& k, const Variable& v, const AttendHeads& attend) {
  const Heads inputs{q, k, v}, constants{q.detach(), k.detach(), v.detach()};
  const auto blocks = row_blocks(q.dim(2), k.dim(2));
  Heads parts;
  Variable y;
  {
    const NoGrad none;
    for (const auto& block : blocks) parts.push_back(attend(block_heads(constants, block)));
    y = ops::concat(parts, 2);
  }
  if (!needs_grad(inputs)) return y;
  const std::vector<bool> wanted{q.requires_grad(), k.requires_grad(), v.requires_grad()};
  const auto backward = [=, path = module_path(), numbers = backward_type()](const Tensor& dy) {
    // backward runs without recording; the block needs its tape.
    const ScopedValue records(context().records, true);
    const ScopedValue place(context().path, path);
    const BackwardScope products(numbers);
    std::vector<Tensor> rows;
    KeyGradients keys[2];
    // From the last block, which sees all keys, to the first: KeyGradients relies on this order.
    for (std::size_t b = blocks.size(); b-- > 0;) {
      Heads given;
      for (const auto& head : block_heads(constants, blocks[b])) {
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

Variable reshape_if_needed(const Variable& x, const Shape& shape) {
  return x.shape() == shape ? x : ops::reshape(x, shape);
}

Variable products(const Variable& q, const Variable& k, const Variable& v, const OnWeights& on_weights,
                  const ops::AttentionOptions& options, const Variable& mask) {
  // Grouped queries: the query heads that share a key head are stacked as rows, so that one product serves
  // them.
  const std::int64_t samples = q.dim(0), queries = q.dim(2), keys = k.dim(2), groups = k.dim(1),
                     rows = q.dim(1) / groups * queries;
  const Variable scores = ops::matmul(reshape_if_needed(q, {samples, groups, rows, q.dim(3)}), k, true);
  const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.dim(3))));
  Variable weights = ops::attention_weights(reshape_if_needed(scores, {samples, q.dim(1), queries, keys}),
                                            {.causal = options.causal, .scale = scale}, mask);
  if (on_weights.softmax) weights = (*on_weights.softmax)(weights);
  weights = ops::dropout(weights, on_weights.dropout, true);
  const Variable y = ops::matmul(reshape_if_needed(weights, {samples, groups, rows, keys}), v);
  return reshape_if_needed(y, {samples, q.dim(1), queries, v.dim(3)});
}

/// Whether the product multiplies integer codes of x.
bool has_factors(const Variable& x) {
  if (x.quantized() == nullptr) return false;
  const Grid& grid = x.quantized()->grid;
  return grid.format.is_integer() && grid.format.bits() <= 8 && grid.granularity.is_per_tensor();
}

/// Whether a product with a part of the keys has the bits of a product with all keys. This holds because
/// integer sums are exact and keys after a row have the code 0. Returns false if the quantizer reads its
/// whole input to find a range, if dropout counts elements, or during a trace.
bool splits(const Variable& q, const Variable& k, const Variable& v, const OnWeights& on_weights,
            const ops::AttentionOptions& options, const Variable& mask) {
  if (!options.causal || mask.defined() || on_weights.dropout > 0 || recorder() != nullptr) return false;
  if (!q.device().is_cpu() || q.dim(2) <= kRowsTogether || k.dim(2) < q.dim(2)) return false;
  if (!has_factors(q) || !has_factors(k) || !has_factors(v) || !on_weights.softmax) return false;
  const QuantParams& softmax = (*on_weights.softmax)->params();
  return softmax.enabled && softmax.quantizing && !softmax.observing && !softmax.running &&
         !(*on_weights.softmax)->range().grows() && softmax.has_fixed_range() &&
         softmax.descriptor.format().is_integer() && softmax.descriptor.format().bits() <= 8;
}

}  // namespace

bool attends_on_codes(const Variable& q, const Variable& k, const TensorQuantizer& softmax) {
  return (q.quantized() != nullptr && k.quantized() != nullptr) || softmax.params().enabled;
}

Variable attend_by_products(const Variable& q, const Variable& k, const Variable& v,
                            const OnWeights& on_weights, const ops::AttentionOptions& options,
                            const Variable& mask) {
  std::vector<Variable> ranges;
  if (on_weights.softmax)
    // A learned range of the softmax quantizer needs a gradient from the checkpoint.
    for (const auto& [name, range] : (*on_weights.softmax)->named_parameters()) ranges.push_back(range);
  const auto attend = [=](const std::vector<Variable>& heads) {
    return products(heads[0], heads[1], heads[2], on_weights, options, mask);
  };
  // On the CPU, scores and probabilities, [N, H, L, S], are recomputed in backward instead of stored.
  if (q.device().is_cuda()) return attend({q, k, v});
  if (splits(q, k, v, on_weights, options, mask)) return attend_by_rows(q, k, v, attend);
  return checkpoint(attend, {q, k, v}, ranges);
}

}  // namespace fq::detail
