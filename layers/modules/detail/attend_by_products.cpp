#include "fakequant/layers/modules/detail/attend_by_products.h"

#include <cmath>

#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/core/trace.h"
#include "fakequant/layers/modules/checkpoint.h"
#include "fakequant/layers/modules/detail/attend_by_rows.h"

namespace fq::detail {
namespace {

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

/// Whether its codes are multiplied in integers.
bool has_factors(const Variable& x) {
  if (x.quantized() == nullptr) return false;
  const QuantSpec& spec = x.quantized()->spec;
  return spec.format.is_integer() && spec.format.bits() <= 8 && spec.granularity.is_per_tensor();
}

/// Whether products with a part of the keys have the bits of those with all: sums of integers are exact, and
/// a key behind a row has the code 0. A quantizer that looks at its input wants it whole, dropout counts
/// elements, and a graph is traced as it is.
bool splits(const Variable& q, const Variable& k, const Variable& v, const OnWeights& on_weights,
            const ops::AttentionOptions& options, const Variable& mask) {
  if (!options.causal || mask.defined() || on_weights.dropout > 0 || recorder() != nullptr) return false;
  if (!q.device().is_cpu() || q.dim(2) <= kRowsTogether || k.dim(2) < q.dim(2)) return false;
  if (!has_factors(q) || !has_factors(k) || !has_factors(v) || !on_weights.softmax) return false;
  const QuantizerSettings& softmax = (*on_weights.softmax)->settings();
  return softmax.enabled && softmax.quantizing && !softmax.observing && !softmax.running &&
         !(*on_weights.softmax)->range().grows() && softmax.has_fixed_range() &&
         softmax.descriptor.format().is_integer() && softmax.descriptor.format().bits() <= 8;
}

}  // namespace

bool attends_on_codes(const Variable& q, const Variable& k, const TensorQuantizer& softmax) {
  return (q.quantized() != nullptr && k.quantized() != nullptr) || softmax.settings().enabled;
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
  if (splits(q, k, v, on_weights, options, mask)) return attend_by_rows(q, k, v, attend);
  return checkpoint(attend, {q, k, v}, ranges);
}

}  // namespace fq::detail
