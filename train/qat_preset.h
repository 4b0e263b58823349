#pragma once

/// A preset with what few bits need beside it: how its ranges are calibrated and what the edges have.
///
///     PresetChoices choices;
///     choices.edge_bits = 4;                                          // the default of w2a2 is 8
///     const auto w2a2 = preset_config("w2a2", choices);
///     quantize(model, QuantConfig::from_json(w2a2), {1, 1, 28, 28});

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "fakequant/layers/config/quant_config.h"

namespace fq {

/// What somebody chose in place of the defaults of a preset (QatDefaults).
struct PresetChoices {
  std::optional<std::string> weight_method = {};  ///< calibration of weights, a calib_method
  /// Bits of integers in the first and the last layer, 2 to 16; 8 with blocks of 4-bit floats, which are E4M3
  /// there; 0 for those of the preset.
  std::optional<std::int64_t> edge_bits = {};
};

/// The config of a preset as `fakequant calibrate` and `qat` take it: `preset`, with the `algorithm` and the
/// `rules` of its QatDefaults where those say other than the preset. Throws ArgumentError for an unknown
/// preset, for edge_bits of 1 or out of range, and where the preset's format has no edges to choose.
[[nodiscard]] nlohmann::ordered_json preset_config(const std::string& preset,
                                                   const PresetChoices& choices = {});

/// "target ort, scale free; ranges by one_pass_mse; 8 bits in the first and the last layer".
[[nodiscard]] std::string describe_choice(const QuantConfig& config);

}  // namespace fq
