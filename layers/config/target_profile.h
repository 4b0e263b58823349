#pragma once

/// Names of targets and their engines, for messages, export and flags.
///
///     const TargetProfile& engine = target_profile(Target::ggml);
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
  std::string_view name;    ///< name in files and flags
  std::string_view engine;  ///< name in messages
  /// Whether inputs of linear layers are rounded at run time. Then everything else stays in floats.
  bool rounds_inputs;
  std::string_view presets;  ///< presets for the target
  std::string_view format;   ///< value of `fakequant export --format`
  bool onnx;                 ///< whether the ONNX exporter supports it
};

/// Returns all targets, in the order of Target.
[[nodiscard]] std::span<const TargetProfile> target_profiles();
/// Returns the profile of a target.
[[nodiscard]] const TargetProfile& target_profile(Target target);
/// Returns the names of all targets, and "openvino".
[[nodiscard]] std::vector<std::string> target_names();
/// Returns the target of a name; "openvino" is `ort`. Throws ArgumentError for an unknown name, with the
/// list.
[[nodiscard]] Target target_named(std::string_view name);

}  // namespace fq
