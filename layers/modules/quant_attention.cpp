#include "fakequant/layers/modules/quant_attention.h"

#include <cmath>

#include "fakequant/core/ops/attention.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/ops/shape.h"

namespace fq {
namespace {

Variable in_shape(const Variable& x, const Shape& shape) {
  return x.shape() == shape ? x : ops::reshape(x, shape);
}

}  // namespace

const std::vector<std::string>& QuantAttention::quantizer_names() {
  static const std::vector<std::string> names{"q_bmm_quantizer", "k_bmm_quantizer", "v_bmm_quantizer",
                                              "softmax_quantizer"};
  return names;
}

QuantAttention::QuantAttention(const Attention& layer) : Attention(Adopt(), layer) {
  Child<TensorQuantizer>* const places[] = {&q_, &k_, &v_, &softmax_};
  for (std::size_t i = 0; i < quantizer_names().size(); ++i) {
    *places[i] = add_module(quantizer_names()[i], std::make_shared<TensorQuantizer>());
    (*places[i])->set_enabled(false);
  }
}

Attention::Heads QuantAttention::on_grids(Heads heads) const {
  return {q_(heads.q), k_(heads.k), v_(heads.v)};
}

Variable QuantAttention::attend(const Heads& heads, const Variable& mask) const {
  const auto& [q, k, v] = heads;
  const bool codes = q.quantized() != nullptr && k.quantized() != nullptr;
  if (!codes && !softmax_->enabled()) return Attention::attend(heads, mask);
  const std::int64_t samples = q.dim(0), queries = q.dim(2), keys = k.dim(2), groups = k.dim(1),
                     rows = q.dim(1) / groups * queries;
  const Variable scores = ops::matmul(in_shape(q, {samples, groups, rows, q.dim(3)}), k, true);
  const double scale = 1.0 / std::sqrt(static_cast<double>(q.dim(3)));
  const Variable weights =
      softmax_(ops::attention_weights(in_shape(scores, {samples, q.dim(1), queries, keys}),
                                      {.causal = options().causal, .scale = scale}, mask));
  const Variable y = ops::matmul(in_shape(weights, {samples, groups, rows, keys}), v);
  return in_shape(y, {samples, q.dim(1), queries, v.dim(3)});
}

}  // namespace fq
