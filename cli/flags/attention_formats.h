#pragma once

/// --attention and --kv: the formats of what attention multiplies.

#include <nlohmann/json_fwd.hpp>

#include "fakequant/cli/flags/flags.h"

namespace fq::cli {

void add_attention_flags(FlagSet& set);
/// Appends what the flags say to the rules of a quantization config. Throws ArgumentError for a format that
/// is none, and for a flag beside --config.
void add_attention_rules(const Flags& flags, nlohmann::ordered_json& config);

}  // namespace fq::cli
