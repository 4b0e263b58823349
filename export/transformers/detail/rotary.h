#pragma once

/// Rotary positions as config.json tells of them.

#include "fakequant/export/transformers/detail/config.h"

namespace fq::detail {

/// The options of a node `attention` that its angles follow from: "rotary_base" and, where "rope_scaling" or
/// "rope_parameters" have another type than "default", "rotary_scaling" and its numbers. Throws FileError
/// with the line for types that are not computed, naming those that are, for numbers that are missing or out
/// of range, and where positions turn a part of each head alone.
[[nodiscard]] nlohmann::ordered_json rotary_options(const TransformerConfig& config);

}  // namespace fq::detail
