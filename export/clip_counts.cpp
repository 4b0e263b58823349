#include <bit>

#include "fakequant/core/variable.h"
#include "fakequant/export/scales.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"

namespace fq {
namespace {

/// Bits of a mask that are set; those after its last element do not count.
std::int64_t passed(const Tensor& bits) {
  const Tensor mask = bits.to(Device::cpu());
  const auto* bytes = static_cast<const std::uint8_t*>(mask.raw());
  const std::int64_t whole = mask.numel() / 8, rest = mask.numel() % 8;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < whole; ++i) count += std::popcount(bytes[i]);
  if (rest > 0) count += std::popcount(static_cast<std::uint8_t>(bytes[whole] & ((1 << rest) - 1)));
  return count;
}

}  // namespace

ClipCounter::ClipCounter(Module& model) {
  for (auto& [path, module] : model.named_modules())
    if (auto* quant = dynamic_cast<QuantModule*>(module);
        quant != nullptr && quant->weight_quantizer() != nullptr)
      for (const auto* part : quantizer_parts(*quant->weight_quantizer())) weights_.insert(part->name());
}

void ClipCounter::on_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
                        Attributes) {
  const QuantizedTensor* codes = op == "quantize" ? output.quantized() : nullptr;
  if (codes == nullptr || output.numel() == 0) return;
  const std::string& name = codes->grid.name;
  if (weights_.contains(name) && (counts_.contains(name) || holds_codes(inputs.at(0)))) return;
  const Tensor mask = quantize(inputs.at(0).tensor(), codes->grid).mask;
  ClipCount& sum = counts_[name];
  sum.clipped += mask.numel() - passed(mask);
  sum.count += mask.numel();
}

}  // namespace fq
