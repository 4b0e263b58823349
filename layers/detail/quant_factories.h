#pragma once

/// Which modules have a quantized counterpart: those of the library, and what `register_quant_module` added.

#include <cstddef>
#include <memory>

#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// Whether the module's type, exactly, has one.
[[nodiscard]] bool is_quantizable(const Module& module);
/// That of a layer which has one and reads so many inputs.
[[nodiscard]] std::shared_ptr<Module> quantized_counterpart(const Module& layer, std::size_t inputs);

}  // namespace fq::detail
