#include "fakequant/layers/modules/quant_attention.h"

#include "fakequant/layers/modules/detail/attend_by_products.h"

namespace fq {

const std::vector<std::string>& QuantAttention::quantizer_names() {
  // ModelOpt's names, which its configs use in patterns.
  static const std::vector<std::string> names{"q_bmm_quantizer", "k_bmm_quantizer", "v_bmm_quantizer",
                                              "softmax_quantizer"};
  return names;
}

QuantAttention::QuantAttention(const Attention& layer) : Attention(Adopt(), layer) {
  Child<TensorQuantizer>* const children[] = {&q_, &k_, &v_, &softmax_};
  for (std::size_t i = 0; i < quantizer_names().size(); ++i) {
    *children[i] = add_module(quantizer_names()[i], std::make_shared<TensorQuantizer>());
    (*children[i])->set_enabled(false);
  }
}

Attention::Heads QuantAttention::quantize_heads(Heads heads) const {
  return {q_(heads.q), k_(heads.k), v_(heads.v)};
}

bool QuantAttention::is_plain() const {
  for (const Child<TensorQuantizer>* quantizer : {&q_, &k_, &v_, &softmax_})
    if ((*quantizer)->params().enabled || (*quantizer)->params().pre_quant_scale.defined()) return false;
  return true;
}

Variable QuantAttention::attend(const Heads& heads, const Variable& mask) const {
  if (!detail::attends_on_codes(heads.q, heads.k, *softmax_)) return Attention::attend(heads, mask);
  const detail::OnWeights on_weights{.softmax = softmax_, .dropout = training() ? options().dropout : 0};
  return detail::attend_by_products(heads.q, heads.k, heads.v, on_weights, {.causal = options().causal},
                                    mask);
}

}  // namespace fq
