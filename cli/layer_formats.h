#pragma once

/// Formats for each layer within a budget of bits, and tables of sensitivities and plans.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/quantization.h"
#include "fakequant/train/sensitivity/auto_quantize.h"
#include "fakequant/train/sensitivity/sensitivity.h"

namespace fq::cli {

struct LayerFormatOptions {
  std::optional<double> effective_bits = {};  ///< largest average number of bits of a weight
  std::optional<std::string> formats = {};    ///< presets to choose from, in addition to --preset
};

/// Adds --effective-bits and --formats.
void add_layer_format_flags(FlagSet& set, LayerFormatOptions& options);
/// Throws ArgumentError for unknown formats, and for --formats alone.
void check_layer_formats(const LayerFormatOptions& options, const QuantizationOptions& quantization);

/// Throws ArgumentError if the budget has fewer bits than the formats reach, or if the network has no
/// classes.
void check_plannable(const Network& network, const LayerFormatOptions& options,
                     const QuantizationOptions& quantization, const Quantization& base);

/// Chooses the format of each layer: minimizes the sum of damages (train/sensitivity/auto_quantize.h) on
/// `samples` with at most --effective-bits per weight on average. Uses target, scale and methods of `base`.
/// Does not change the network. Prints the plan.
[[nodiscard]] Quantization choose_formats(const Network& network, const LayerFormatOptions& options,
                                          const QuantizationOptions& quantization, const Quantization& base,
                                          const std::shared_ptr<const Dataset>& samples, std::int64_t batch,
                                          Output& output);

[[nodiscard]] std::string sensitivity_table(const SensitivityReport& report);
/// Returns the layers by descending damage, then the sums.
[[nodiscard]] std::string plan_table(const QuantizationPlan& plan);

}  // namespace fq::cli
