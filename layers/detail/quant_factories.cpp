#include "fakequant/layers/detail/quant_factories.h"

#include <map>
#include <utility>

#include "fakequant/layers/modules/dot_product_attention.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/layers/modules/quant_attention.h"
#include "fakequant/layers/modules/quant_recurrent.h"
#include "fakequant/layers/quantize.h"

namespace fq {
namespace {

// A function-local static, because users may register types before main.
std::map<std::type_index, QuantFactory>& registered() {
  static std::map<std::type_index, QuantFactory> table;
  return table;
}

template <class Float>
void register_inputs() {
  register_quant_module(
      typeid(Float), [](const Module& layer, std::size_t inputs) -> std::shared_ptr<Module> {
        return std::make_shared<QuantInputs<Float>>(static_cast<const Float&>(layer), inputs);
      });
}

void register_defaults() {
  const auto own = registered();  // registrations of users take precedence
  register_quant_module<Linear, QuantLinear>();
  register_quant_module<TiedLinear, QuantLinear>();
  register_quant_module<Conv1d, QuantConv1d>();
  register_quant_module<Conv2d, QuantConv2d>();
  register_quant_module<Conv3d, QuantConv3d>();
  register_quant_module<ConvTranspose1d, QuantConvTranspose1d>();
  register_quant_module<ConvTranspose2d, QuantConvTranspose2d>();
  register_quant_module<ConvTranspose3d, QuantConvTranspose3d>();
  register_quant_module<Recurrent, QuantRecurrent>();
  register_quant_module<Attention, QuantAttention>();
  register_quant_module<DotProductAttention, QuantDotProductAttention>();
  register_inputs<Add>();
  register_inputs<Concat>();
  register_inputs<AvgPool2d>();
  register_inputs<AvgPool3d>();
  register_inputs<GlobalAvgPool2d>();
  for (const auto& [type, make] : own) registered()[type] = make;
}

const std::map<std::type_index, QuantFactory>& factories() {
  // Defaults are added at the first use. The initialisation of a static runs once, also with several threads.
  static const bool once = (register_defaults(), true);
  (void)once;
  return registered();
}

}  // namespace

void register_quant_module(std::type_index type, QuantFactory make) { registered()[type] = std::move(make); }

// typeid of the object: derived types are not included, because their forward may differ.
bool detail::is_quantizable(const Module& module) { return factories().contains(typeid(module)); }

std::shared_ptr<Module> detail::quantized_counterpart(const Module& layer, std::size_t inputs) {
  return factories().at(typeid(layer))(layer, inputs);
}

}  // namespace fq
