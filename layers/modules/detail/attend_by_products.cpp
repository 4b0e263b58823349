#include "fakequant/layers/modules/detail/attend_by_products.h"

#include <cmath>

#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/layers/modules/checkpoint.h"

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

}  // namespace

bool attends_on_codes(const Variable& q, const Variable& k, const TensorQuantizer& softmax) {
  return (q.quantized() != nullptr && k.quantized() != nullptr) || softmax.enabled();
}

Variable attend_by_products(const Variable& q, const Variable& k, const Variable& v,
                            const OnWeights& on_weights, const ops::AttentionOptions& options,
                            const Variable& mask) {
  const auto attend = [=](const std::vector<Variable>& heads) {
    return products(heads[0], heads[1], heads[2], on_weights, options, mask);
  };
  if (q.device().is_cuda()) return attend({q, k, v});
  std::vector<Variable> ranges;
  if (on_weights.softmax)
    for (const auto& [name, range] : (*on_weights.softmax)->named_parameters()) ranges.push_back(range);
  return checkpoint(attend, {q, k, v}, ranges);
}

}  // namespace fq::detail
