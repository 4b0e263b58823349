#pragma once

/// Factories of quantized counterparts, for modules of the library and for types that `register_quant_module`
/// added.

#include <cstddef>
#include <memory>

#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// Whether exactly the type of the module has a quantized counterpart.
[[nodiscard]] bool is_quantizable(const Module& module);
/// Returns the quantized counterpart of a quantizable layer that reads `inputs` tensors.
[[nodiscard]] std::shared_ptr<Module> quantized_counterpart(const Module& layer, std::size_t inputs);

}  // namespace fq::detail
