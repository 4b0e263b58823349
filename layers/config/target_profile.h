#pragma once

/// Names of targets and their engines, for messages, export and flags.
///
///     const TargetProfile& engine = profile_of(Target::ggml);
///     engine.presets;  // "q4_0 or q8_0"

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/layers/config/quant_config.h"

namespace fq {

/// One target: names, formats and presets of its engine.
struct TargetProfile {
  Target target;
  std::string_view name;    ///< as files and flags have it
  std::string_view engine;  ///< as people call it
  /// Whether inputs of linear layers are rounded at run time. Then everything else stays in floats.
  bool rounds_inputs;
  std::string_view presets;  ///< presets for it
  std::string_view format;   ///< what `fakequant export --format` writes for it
  bool onnx;                 ///< whether the ONNX exporter writes for it
};

/// All of them, in the order of Target.
[[nodiscard]] std::span<const TargetProfile> target_profiles();
[[nodiscard]] const TargetProfile& profile_of(Target target);
/// The names, and the target of one. Throws ArgumentError for another, with the list.
[[nodiscard]] std::vector<std::string> target_names();
[[nodiscard]] Target target_named(std::string_view name);

}  // namespace fq
