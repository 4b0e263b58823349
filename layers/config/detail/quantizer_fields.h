#pragma once

/// The fields of a rule, put into a quantizer's settings.

#include <string_view>

#include "fakequant/layers/config/quant_fields.h"
#include "fakequant/layers/quantizer/settings.h"

namespace fq::detail {

/// Sets what `fields` give, null being the default; a descriptor with the rest as it was. Throws
/// ArgumentError for fields that do not fit each other, and for a sequence: that is more than one quantizer.
void apply(const QuantFields& fields, QuantizerSettings& settings);
/// "clip", "lsq"; the second throws ArgumentError for another name.
[[nodiscard]] std::string_view amax_gradient_name(AmaxGradient gradient) noexcept;
[[nodiscard]] AmaxGradient amax_gradient_from_name(std::string_view name);

}  // namespace fq::detail
