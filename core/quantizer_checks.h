#pragma once

/// What the readers of a QuantSpec check and say; not a public header.

#include <string>
#include <string_view>

#include "fakequant/core/quantized.h"

namespace fq::detail {

/// Throws ArgumentError unless the scales lie where `x` does; anywhere for an `x` on meta.
void check_device(const QuantSpec& spec, const Tensor& x, std::string_view function);
[[nodiscard]] std::string nan_message(const QuantSpec& spec);

}  // namespace fq::detail
