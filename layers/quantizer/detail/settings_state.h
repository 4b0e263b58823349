#pragma once

/// Settings of a quantizer in checkpoints.

#include "fakequant/core/io/state_dict.h"
#include "fakequant/layers/quantizer/settings.h"

namespace fq::detail {

/// Under the prefix, all but the name. Loading throws ArgumentError naming the quantizer where they are
/// damaged.
void save_settings(const QuantizerSettings& settings, StateDict& state, const std::string& prefix);
[[nodiscard]] QuantizerSettings load_settings(std::string name, const StateDict& state,
                                              const std::string& prefix);

}  // namespace fq::detail
