#pragma once

/// From a float network to a calibrated one, as the flags say.

#include <optional>
#include <span>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/flags/planned_files.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/layers/config/quant_config.h"
#include "fakequant/network/calibration.h"
#include "fakequant/train/ptq/algorithms.h"

namespace fq::cli {

/// A quantization config as checkpoints keep it, what it says, and its algorithm on weights.
struct Quantization {
  nlohmann::ordered_json json;
  QuantConfig config;
  ptq::Algorithm algorithm;
};

/// What a config says. Throws ArgumentError for keys that are none, with their line in --config where it is
/// from there.
[[nodiscard]] Quantization checked_quantization(const Flags& flags, nlohmann::ordered_json json);
/// The quantization config of --preset or --config, with --target, --scale and --method over it.
/// A plan of `sensitivity` is the config that it holds. Throws ArgumentError naming file and line of a key
/// that is not one.
[[nodiscard]] Quantization read_quantization(const Flags& flags);
/// What --config has besides a preset, with --target over it; an empty object without. Throws likewise.
[[nodiscard]] nlohmann::ordered_json read_base_quantization(const Flags& flags);

/// The flags that say how, but for --preset and --config; those of calibration too.
[[nodiscard]] std::span<const char* const> quantizing_flags();

/// Folds batch norm (unless --keep-bn) and places quantizers without ranges; false where --config will be
/// written by an earlier phase. `images`: whether there is data. Throws for flags and files as
/// `quantize_and_calibrate`.
[[nodiscard]] bool plan_quantization(Network& network, const Flags& flags, const PlannedFiles& planned,
                                     bool images);

/// Folds batch norm (unless --keep-bn), places quantizers, gives them the ranges of --import, and calibrates
/// the others (calibration.h), unless there is nothing to calibrate on or `calibrate` is off because ranges
/// will be loaded. Returns the samples that calibrators have seen, nothing where none were calibrated.
std::optional<CollectedSamples> quantize_and_calibrate(Network& network, const Flags& flags,
                                                       const Quantization& quantization,
                                                       std::shared_ptr<const Dataset> data, Output& output,
                                                       bool calibrate = true);

}  // namespace fq::cli
