#include "fakequant/layers/modules/detail/attend_by_products.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/core/trace.h"
#include "fakequant/layers/modules/checkpoint.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kCausalRows = 128;  // of a block, whose keys end at a multiple of that

Variable in_shape(const Variable& x, const Shape& shape) {
  return x.shape() == shape ? x : ops::reshape(x, shape);
}

Variable products(const Variable& q, const Variable& k, const Variable& v, const OnWeights& on_weights,
                  const ops::AttentionOptions& options, const Variable& mask) {
  const std::int64_t samples = q.dim(0), queries = q.dim(2), keys = k.dim(2), groups = k.dim(1),
                     rows = q.dim(1) / groups * queries;
  const Variable scores = ops::matmul(in_shape(q, {samples, groups, rows, q.dim(3)}), k, true);
  const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.dim(3))));
  Variable weights = ops::attention_weights(in_shape(scores, {samples, q.dim(1), queries, keys}),
                                            {.causal = options.causal, .scale = scale}, mask);
  if (on_weights.softmax) weights = (*on_weights.softmax)(weights);
  weights = ops::dropout(weights, on_weights.dropout, true);
  const Variable y = ops::matmul(in_shape(weights, {samples, groups, rows, keys}), v);
  return in_shape(y, {samples, q.dim(1), queries, v.dim(3)});
}

bool is_integer(const Variable& x) {
  return x.quantized() != nullptr && x.quantized()->spec.format.is_integer();
}

/// Whether products with a part of the keys have the bits of those with all: sums of integers are exact, and
/// a key behind a row has the code 0. A quantizer that looks at its input wants it whole, dropout counts
/// elements, and a graph is traced as it is.
bool splits(const Variable& q, const Variable& k, const Variable& v, const OnWeights& on_weights,
            const ops::AttentionOptions& options, const Variable& mask) {
  if (!options.causal || mask.defined() || on_weights.dropout > 0 || recorder() != nullptr) return false;
  if (!q.device().is_cpu() || q.dim(2) <= kCausalRows || k.dim(2) < q.dim(2)) return false;
  if (!is_integer(q) || !is_integer(k) || !is_integer(v) || !on_weights.softmax) return false;
  const QuantizerSettings& softmax = (*on_weights.softmax)->settings();
  return softmax.enabled && softmax.quantizing && !softmax.observing && !softmax.running &&
         softmax.has_fixed_range() && softmax.descriptor.format().is_integer();
}

/// As `rows` are attended by, which see the keys before `seen` alone.
using AttendRows = std::function<Variable(std::int64_t row, std::int64_t end, std::int64_t seen)>;

Variable by_rows(std::int64_t queries, std::int64_t keys, const AttendRows& attend) {
  std::vector<Variable> blocks;
  const std::int64_t before = keys - queries;  // seen by all
  for (std::int64_t row = 0, end = 0; row < queries; row = end) {
    end = std::min(queries, ((before + row) / kCausalRows + 1) * kCausalRows - before);
    blocks.push_back(attend(row, end, before + end));
  }
  return ops::concat(blocks, 2);
}

}  // namespace

bool attends_on_codes(const Variable& q, const Variable& k, const TensorQuantizer& softmax) {
  return (q.quantized() != nullptr && k.quantized() != nullptr) || softmax.enabled();
}

Variable attend_by_products(const Variable& q, const Variable& k, const Variable& v,
                            const OnWeights& on_weights, const ops::AttentionOptions& options,
                            const Variable& mask) {
  std::vector<Variable> ranges;
  if (on_weights.softmax)
    for (const auto& [name, range] : (*on_weights.softmax)->named_parameters()) ranges.push_back(range);
  const auto attend = [=](const std::vector<Variable>& heads) {
    return products(heads[0], heads[1], heads[2], on_weights, options, mask);
  };
  if (q.device().is_cuda()) return attend({q, k, v});
  if (!splits(q, k, v, on_weights, options, mask)) return checkpoint(attend, {q, k, v}, ranges);
  return by_rows(q.dim(2), k.dim(2), [&](std::int64_t row, std::int64_t end, std::int64_t seen) {
    const auto attend_rows = [=](const std::vector<Variable>& heads) {
      return attend({ops::slice(heads[0], 2, row, end), ops::slice(heads[1], 2, 0, seen),
                     ops::slice(heads[2], 2, 0, seen)});
    };
    return checkpoint(attend_rows, {q, k, v}, ranges);
  });
}

}  // namespace fq::detail
