#pragma once

/// ModelOpt's QuantizerAttributeConfig, read into a QuantDescriptor.

#include <nlohmann/json_fwd.hpp>

#include "fakequant/core/descriptor.h"

namespace fq::modelopt {

/// The descriptor of ModelOpt's fields, with its refusals: besides those of QuantDescriptor, nothing but
/// `{"enable": true}`, and learn_amax. `enable` and `pass_through_bwd` are a quantizer's, not a descriptor's:
/// they are checked and left out. Throws ArgumentError.
[[nodiscard]] QuantDescriptor quantizer_attribute_config(const nlohmann::json& fields);

/// ModelOpt's names of fields as keys of QuantDescriptor::dict(): `type` "dynamic" is `dynamic`, `calibrator`
/// is `calib_method`, `constant_amax` is `amax`, formats may be spelled "e4m3". Fields that only its exporter
/// reads (`trt_high_precision_dtype`, `effective_bits`) are dropped, so are the defaults of those we have no
/// counterpart for; their other values are refused (`bias`, `rotate`, `backend`, ..). Keys that ModelOpt does
/// not know stay. Throws ArgumentError naming the field.
[[nodiscard]] nlohmann::json descriptor_fields(const nlohmann::json& fields);

}  // namespace fq::modelopt
