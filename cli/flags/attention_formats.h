#pragma once

/// Formats of the products of attention.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "fakequant/cli/flags/flags.h"

namespace fq::cli {

struct AttentionFormats {
  std::optional<std::string> attention = {};  ///< of queries, keys, values and probabilities
  std::optional<std::string> kv = {};         ///< of keys and values
};

void add_attention_flags(FlagSet& set, AttentionFormats& options);
/// Appends the formats to the rules of a quantization config. Throws ArgumentError for an unknown format.
void add_attention_rules(const AttentionFormats& options, nlohmann::ordered_json& config,
                         const std::string& command);

}  // namespace fq::cli
