#include "fakequant/network/detail/code_recorder.h"

#include "fakequant/core/variable.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"

namespace fq::detail {

CodeRecorder::CodeRecorder(Module& model) {
  for (const auto& parameter : model.parameters()) parameters_.insert(parameter.node().get());
  for (auto& [path, module] : model.named_modules())
    if (auto* quant = dynamic_cast<QuantModule*>(module);
        quant != nullptr && quant->weight_quantizer() != nullptr)
      for (const auto* part : quantizer_parts(*quant->weight_quantizer())) weights_.insert(part->name());
}

void CodeRecorder::on_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
                         Attributes) {
  const QuantizedTensor* value = op == "quantize" ? output.quantized() : nullptr;
  if (value == nullptr || parameters_.contains(inputs.at(0).node().get()) ||
      weights_.contains(value->grid.name))
    return;
  codes_[names_.of(value->grid.name, module_path())].push_back(
      value->codes.to(Device::cpu()).to(Layout::row_major));
}

}  // namespace fq::detail
