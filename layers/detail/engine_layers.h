#pragma once

/// What `quantize` makes of a layer for an engine that rounds inputs as it runs.

#include <memory>
#include <string>

#include "fakequant/layers/config/detail/merged_rules.h"
#include "fakequant/layers/config/target_profile.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::detail {

/// Whether modules of that type are quantized for the target at all, or named where they are not.
[[nodiscard]] bool is_engine_layer(const Module& module, const TargetProfile& profile);
/// Why the layer stays in floats although its weight has a rule: a convolution, rows that are no whole
/// blocks; empty where it is quantized. Throws ArgumentError naming the layer where its rules are not the
/// engine's: formats and blocks that it does not multiply, inputs that are not rounded as it runs.
[[nodiscard]] std::string why_floats(const std::string& path, const Module& layer,
                                     const TargetProfile& profile, const QuantDescriptor& weight,
                                     const MergedRules& input);
/// The quantized counterpart, whose target is set; of a layer that `why_floats` lets be.
[[nodiscard]] std::shared_ptr<Module> engine_counterpart(const Module& layer, const TargetProfile& profile,
                                                         const MergedRules& input);

/// Functions of the traced model that the engine computes otherwise become the engine's: GELU for `f16_gelu`.
void take_engine_functions(Module& model, const TraceGraph& graph, const TargetProfile& profile);

}  // namespace fq::detail
