#pragma once

/// Quantization and calibration of a float network.

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "fakequant/cli/calibration.h"
#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/layers/config/quant_config.h"
#include "fakequant/network/qat.h"
#include "fakequant/train/ptq/algorithms.h"

namespace fq::cli {

struct AttentionFormats {
  std::optional<std::string> attention = {};  ///< format of queries, keys, values and probabilities
  std::optional<std::string> kv = {};         ///< format of keys and values
};

void add_attention_flags(FlagSet& set, AttentionFormats& options);
/// Appends the formats to the rules of a quantization config. Throws ArgumentError for an unknown format.
void add_attention_rules(const AttentionFormats& options, nlohmann::ordered_json& config,
                         const std::string& command);

struct QuantizationOptions {
  std::string command = {};
  std::optional<std::string> preset = {}, config = {};  ///< a name, and a JSON file; default: preset int8
  std::optional<std::string> target = {}, scale = {};
  std::optional<std::int64_t> edge_bits = {};
  AttentionFormats attention = {};
  bool strict = false, keep_bn = false;
  std::optional<std::string> method = {}, weight_method = {}, algorithm = {};

  [[nodiscard]] bool skips_calibration() const { return method == "none"; }
  /// Returns the flag of the first given option, except for preset and config. Returns an empty text if no
  /// option is given.
  [[nodiscard]] std::string first_detail() const;
};

/// Adds --preset.
void add_preset_flag(FlagSet& set, QuantizationOptions& options);
/// Adds --config and --target.
void add_config_flags(FlagSet& set, QuantizationOptions& options);
/// Adds --scale, --edge-bits, --attention, --kv, --strict and --keep-bn.
void add_format_flags(FlagSet& set, QuantizationOptions& options);
/// Adds --method.
void add_method_flag(FlagSet& set, QuantizationOptions& options);
/// Adds --weight-method and --algorithm.
void add_weight_flags(FlagSet& set, QuantizationOptions& options);

/// Adds the flags of config and format to the current group, then the group "Calibration": the flags that
/// `calibrate` and `inspect` share.
void add_calibrating_flags(FlagSet& set, QuantizationOptions& quantization, CalibrationOptions& calibration);

/// A quantization config: its JSON as checkpoints store it, the parsed config, and its algorithm on weights.
struct Quantization {
  nlohmann::ordered_json json;
  QuantConfig config;
  ptq::Algorithm algorithm;
};

/// Parses a config. Throws ArgumentError for unknown keys, with their line if they are from --config.
[[nodiscard]] Quantization checked_quantization(const QuantizationOptions& options,
                                                nlohmann::ordered_json json);
/// Returns the config of --preset or --config, overridden by the other options. For a plan of `sensitivity`,
/// returns the config in the plan. `choose_edges`: the first and the last layer keep the bits of the preset.
/// Throws ArgumentError naming file and line of an unknown key.
[[nodiscard]] Quantization read_quantization(const QuantizationOptions& options, bool choose_edges = false);
/// Returns the config of --config, overridden by --target; an empty object without both.
[[nodiscard]] nlohmann::ordered_json read_base_quantization(const QuantizationOptions& options);

/// Returns "preset int8, target ort, ..", for people.
[[nodiscard]] std::string quantization_text(const QuantizationOptions& options, const Quantization& chosen);
/// Returns "quantize by preset int8 for ort", for a plan.
[[nodiscard]] std::string quantization_step(const QuantizationOptions& options);

/// Folds batch norm (unless --keep-bn) and places quantizers without ranges. `images`: whether data for an
/// algorithm on weights is given; empty without calibration. Throws ArgumentError for options that exclude
/// each other.
void place_quantizers(Network& network, const QuantizationOptions& options,
                      const CalibrationOptions& calibration, const Quantization& chosen,
                      std::optional<bool> images);

/// Copies ranges of the file `import` to placed quantizers. Calibrates the other quantizers (calibration.h),
/// unless data and states are missing or the method is none. Returns the samples of the calibration; empty
/// without calibration.
std::optional<CollectedSamples> choose_ranges(Network& network, const QuantizationOptions& options,
                                              const CalibrationOptions& calibration,
                                              const LoaderOptions& batches,
                                              const std::optional<std::string>& import,
                                              std::shared_ptr<const Dataset> data, Output& output);

}  // namespace fq::cli
