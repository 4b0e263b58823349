#pragma once

/// What the engine of each target runs: the one table that quantizing, refusals, export and flags read.
///
///     const TargetProfile& engine = profile_of(Target::ggml);
///     engine.presets;  // "q4_0 or q8_0"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/core/ops/engines/engine_linear.h"
#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/quantizer/quant_params.h"

namespace fq {

/// One target. Engines that round the input of a layer as they run have `rows`: there only linear layers are
/// quantized, and everything else stays in floats.
struct TargetProfile {
  Target target;
  std::string_view name;          ///< as files and flags have it
  std::string_view engine;        ///< as people call it
  std::optional<RowEngine> rows;  ///< how inputs are rounded as it runs; none where ranges are fixed
  bool tables;                    ///< whether embeddings are tables of codes
  bool f16_gelu;                  ///< whether GELU is ops::ggml_gelu
  std::string_view presets;       ///< what is to be chosen for it
  std::string_view format;        ///< what `fakequant export --format` writes for it
  bool onnx;                      ///< whether the ONNX exporter writes for it
};

/// All of them, in the order of Target.
[[nodiscard]] std::span<const TargetProfile> target_profiles();
[[nodiscard]] const TargetProfile& profile_of(Target target);
/// The names, and the target of one. Throws ArgumentError for another, with the list.
[[nodiscard]] std::vector<std::string> target_names();
[[nodiscard]] Target target_named(std::string_view name);

namespace detail {

/// The grid by which the engine of the target keeps such a weight.
[[nodiscard]] EngineGrid engine_grid_of(const TargetProfile& profile, const QuantDescriptor& weight);

}  // namespace detail
}  // namespace fq
