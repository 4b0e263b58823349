#pragma once

/// Reads the rules of a quantization config from JSON, in fakequant's form and in ModelOpt's form.

#include <nlohmann/json_fwd.hpp>

#include "fakequant/layers/config/quant_config.h"

namespace fq::detail {

/// Appends the rules of the key `rules`: an object `{pattern: fields}`, or a list of objects with a
/// `pattern`. A rule may name a preset instead of fields. Throws ArgumentError naming the rule.
void add_rules(QuantConfig& config, const nlohmann::ordered_json& rules);

/// Appends the rules of a `quant_cfg`, in any form that ModelOpt accepts: an object of patterns (a "default"
/// comes first and means "*"), a list of `{"quantizer_name": .., "cfg": .., "enable": .., "parent_class":
/// ..}`, a list of objects of one pattern, or patterns below "nn.Linear". A `cfg` replaces the fields of
/// earlier rules and enables the quantizer unless `enable` is false. A list as `cfg` is a sequence. Classes
/// without quantizers are skipped. Throws ArgumentError naming the entry.
void add_modelopt_rules(QuantConfig& config, const nlohmann::ordered_json& quant_cfg);

/// Appends a rule to the JSON of a config.
void append_rule(nlohmann::ordered_json& config, nlohmann::ordered_json rule);

}  // namespace fq::detail
