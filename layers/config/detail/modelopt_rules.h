#pragma once

/// ModelOpt's `quant_cfg`.

#include <nlohmann/json_fwd.hpp>

#include "fakequant/layers/config/quant_config.h"

namespace fq::detail {

/// Appends the rules of a `quant_cfg`, in any of the forms that ModelOpt takes: an object of patterns (a
/// "default" comes first and means "*"), a list of `{"quantizer_name": .., "cfg": .., "enable": ..,
/// "parent_class": ..}`, a list of objects of one pattern, patterns below "nn.Linear". A `cfg` replaces what
/// earlier rules gave and switches the quantizer on unless `enable` is false; a list of them is a sequence.
/// Classes that have no quantizer here are passed over. Throws ArgumentError naming the entry.
void add_modelopt_rules(QuantConfig& config, const nlohmann::ordered_json& quant_cfg);

}  // namespace fq::detail
