#pragma once

/// Fields of a quantizer in rules: those of its descriptor and its own.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "fakequant/layers/quantizer/settings.h"

namespace fq::detail {

/// Takes out of `fields` those that are settings of their own and sets them: `enable`, `pass_through_bwd`
/// (true, false or null) and `amax_gradient` ("clip", "lsq"). The rest are keys of QuantDescriptor::dict().
/// Throws ArgumentError naming the field.
void set_own_fields(QuantizerSettings& settings, nlohmann::json& fields);
/// "clip", "lsq"; the second throws ArgumentError for another name.
[[nodiscard]] std::string_view amax_gradient_name(AmaxGradient gradient) noexcept;
[[nodiscard]] AmaxGradient amax_gradient_from_name(std::string_view name);

}  // namespace fq::detail
