#pragma once

/// Weights whose codes are followed, or pulled, while a network is trained.

#include <string>
#include <vector>

#include "fakequant/core/quantized.h"
#include "fakequant/core/variable.h"

namespace fq {
class Module;
class TensorQuantizer;
}  // namespace fq

namespace fq::detail {

/// A weight on a static grid of signed integers of up to 8 bits. The quantizer is the model's; `values` is
/// the parameter.
struct StaticWeight {
  std::string name;  ///< of the quantizer
  TensorQuantizer* quantizer;
  Variable values;
};

/// The codes of such a weight as it stands.
[[nodiscard]] QuantizedTensor static_codes(TensorQuantizer& quantizer, const Variable& values);

/// The scale of each element of codes, in their order.
[[nodiscard]] std::vector<float> steps_of(const QuantizedTensor& codes);

/// The weights of the model that are on such grids, in the model's order. Throws ArgumentError in the name of
/// `function` where there is none.
[[nodiscard]] std::vector<StaticWeight> static_weights(Module& model, std::string_view function);

}  // namespace fq::detail
