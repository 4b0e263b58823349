#pragma once

/// The fields of a rule, put into a quantizer's settings.

#include "fakequant/layers/config/quant_fields.h"
#include "fakequant/layers/quantizer/quant_params.h"

namespace fq::detail {

/// Sets what `fields` give, null being the default; a descriptor with the rest as it was. Throws
/// ArgumentError for fields that do not fit each other, and for a sequence: that is more than one quantizer.
void apply(const QuantFields& fields, QuantParams& params);

}  // namespace fq::detail
