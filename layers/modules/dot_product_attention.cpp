#include "fakequant/layers/modules/dot_product_attention.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/modules/detail/attend_by_products.h"
#include "fakequant/layers/modules/quant_attention.h"

namespace fq {

std::string DotProductAttention::describe() const {
  const std::string scale = options_.scale ? fmt::format("scale {}", *options_.scale) : "";
  return fmt::format("{}{}{}", options_.causal ? "causal" : "", options_.causal && options_.scale ? ", " : "",
                     scale);
}

Variable DotProductAttention::forward(const std::vector<Variable>& inputs) {
  FQ_CHECK(inputs.size() == 3 || inputs.size() == 4, type(),
           "{} inputs: use queries, keys and values, and optionally a mask", inputs.size());
  return attend(inputs[0], inputs[1], inputs[2], inputs.size() > 3 ? inputs[3] : Variable());
}

Variable DotProductAttention::attend(const Variable& q, const Variable& k, const Variable& v,
                                     const Variable& mask) const {
  return ops::scaled_dot_product_attention(q, k, v, options_, mask);
}

QuantDotProductAttention::QuantDotProductAttention(const DotProductAttention& layer)
    : DotProductAttention(layer.options()) {
  adopt(layer);
  Child<TensorQuantizer>* const children[] = {&q_, &k_, &v_, &softmax_};
  for (std::size_t i = 0; i < QuantAttention::quantizer_names().size(); ++i) {
    *children[i] = add_module(QuantAttention::quantizer_names()[i], std::make_shared<TensorQuantizer>());
    (*children[i])->set_enabled(false);
  }
}

Variable QuantDotProductAttention::attend(const Variable& q, const Variable& k, const Variable& v,
                                          const Variable& mask) const {
  const Variable qs = q_(q), ks = k_(k), vs = v_(v);
  // Codes, or quantized probabilities, need the two products one by one. Otherwise the fused operator runs.
  if (detail::attends_on_codes(qs, ks, *softmax_))
    return detail::attend_by_products(qs, ks, vs, {.softmax = softmax_}, options(), mask);
  return DotProductAttention::attend(qs, ks, vs, mask);
}

}  // namespace fq
