#pragma once

/// The quantizers that each module owns.

#include <string>
#include <vector>

#include "fakequant/layers/quantizer/tensor_quantizer.h"
#include "fakequant/train/sensitivity/detail/trials.h"

namespace fq::detail {

/// A module with the slots of its own quantizers: inputs, weight, output. A sequence is one.
struct QuantizedLayer {
  std::string path;
  Module* module = nullptr;
  std::vector<ModuleSlot> quantizers = {};

  /// Any that is enabled.
  [[nodiscard]] bool quantizes() const;
};

/// In the order of the module tree; a module with several paths once.
[[nodiscard]] std::vector<QuantizedLayer> quantized_layers(Module& model);
[[nodiscard]] TensorQuantizer& quantizer_in(const ModuleSlot& slot);
/// A quantizer that is off, with the pre_quant_scale of the other.
[[nodiscard]] std::shared_ptr<TensorQuantizer> switched_off(TensorQuantizer& quantizer);
/// "weight int8, input uint8": of the codes of those that are enabled.
[[nodiscard]] std::string format_text(const QuantizedLayer& layer);

/// Elements of a layer's weight, of a recurrent layer of all of its matrices; 0 without one.
[[nodiscard]] std::int64_t weight_elements(const Module& layer);

}  // namespace fq::detail
