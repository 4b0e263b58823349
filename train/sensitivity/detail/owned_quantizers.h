#pragma once

/// The quantizers that each module owns.

#include <string>
#include <vector>

#include "fakequant/layers/quantizer/tensor_quantizer.h"
#include "fakequant/train/sensitivity/detail/trials.h"

namespace fq::detail {

/// A module with the slots of its own quantizers: inputs, weight, output. A sequence of quantizers has one
/// slot.
struct QuantizedLayer {
  std::string path;
  Module* module = nullptr;
  std::vector<ModuleSlot> quantizers = {};

  /// Returns whether any quantizer is enabled.
  [[nodiscard]] bool quantizes() const;
};

/// Returns the layers in the order of the module tree. A module with several paths occurs once.
[[nodiscard]] std::vector<QuantizedLayer> quantized_layers(Module& model);
[[nodiscard]] TensorQuantizer& slot_quantizer(const ModuleSlot& slot);
/// Returns a disabled quantizer with the pre_quant_scale of `quantizer`.
[[nodiscard]] std::shared_ptr<TensorQuantizer> switched_off(TensorQuantizer& quantizer);
/// Returns the formats of the enabled quantizers: "weight int8, input uint8".
[[nodiscard]] std::string format_text(const QuantizedLayer& layer);

/// Returns the number of elements of a layer's weight, of all matrices for a recurrent layer; 0 without a
/// weight.
[[nodiscard]] std::int64_t weight_elements(const Module& layer);

}  // namespace fq::detail
