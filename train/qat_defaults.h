#pragma once

/// Defaults of quantization-aware training for a format: config of a preset, ranges, learning rates and
/// teacher.
///
///     const auto w2a2 = preset_config("w2a2", {.edge_bits = 4});  // the default of w2a2 is 8
///     quantize(model, QuantConfig::from_json(w2a2), {1, 1, 28, 28});
///     TrainerOptions options{.epochs = 5};
///     complete_training(options, QuantConfig::from_json(w2a2));  // learned ranges, rates

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/layers/config/quant_config.h"
#include "fakequant/train/data/dataset.h"
#include "fakequant/train/loop/trainer.h"

namespace fq {

/// Defaults of calibration and training for a format.
struct QatDefaults {
  int bits = 8;                       ///< fewest bits of a weight or an activation
  int activation_bits = 8;            ///< fewest bits of an activation
  std::string method = "max";         ///< calibration method of activations, a calib_method
  std::string weight_method = "max";  ///< calibration method of weights, a calib_method
  /// Bits of the first and the last layer, and of the inputs of layers without weights (`@sums`) if
  /// activations have 4 bits or fewer. 0 for the bits of the format.
  int edge_bits = 0;
  /// Quantizers of every layer that have static integers: "weight_quantizer", "input_quantizer".
  std::vector<std::string> integers = {};
  /// Names in `integers` whose integers have at most 3 bits in fixed blocks. The first and the last layer
  /// have one range per channel instead.
  std::vector<std::string> integer_blocks = {};
  /// Quantizers with 4-bit floats in blocks, if activations have such blocks too. The first and the last
  /// layer have E4M3 instead.
  std::vector<std::string> float_blocks = {};
  /// Whether additions that only float operators read (`@residual`) stay float. True if activations are
  /// quantized and the engine would add their codes.
  bool float_residuals = false;
  AmaxMode amax = AmaxMode::frozen;  ///< ranges of activations in training
  AmaxGradient amax_gradient = AmaxGradient::clip;
  bool learn_weight_ranges = false;
  double amax_rate = 1;         ///< learning rate of learned ranges, relative to the other parameters
  double learning_rate = 1e-4;  ///< highest learning rate of the schedule, for adamw
  /// Highest learning rate with the same network in float as teacher (train/losses.h).
  double distilled_learning_rate = 1e-4;
  /// Highest learning rate on text (`is_text`), which no network memorizes.
  double text_learning_rate = 3e-4;
  /// Number of steps of the runs that have these rates. Shorter runs have `short_run_rate`. 0 if every run
  /// has these rates.
  std::int64_t full_rate_steps = 0;
  /// Share of the teacher in the loss on text, with the same network in float as teacher. The labels have the
  /// rest. 0 for 8-bit integers only.
  double text_teacher_share = 0;
  double text_temperature = 1;  ///< temperature of that distillation
  /// Whether, on text, ranges of activations stay fixed and ranges of weights are learned at a tenth of the
  /// rate. True for 4-bit weights with activations of more bits.
  bool text_keeps_activations = false;
};

/// Returns the defaults for the rules of `config`. Ignores rules that disable a quantizer, and rules of edges
/// (`@first`, `@last`) and of the products of attention (`*bmm_quantizer`).
///
/// Static integers of up to 4 bits (in blocks, up to 3) have few levels, and their grid must move with the
/// weights. Their ranges minimize the squared error and are learned as steps of the grid (Esser et al. 2020).
/// The first and the last layer then have 8 bits, and with blocks of 4-bit floats E4M3 with one range.
/// Weights in fixed blocks of 4-bit integers get ranges by search, which are not learned. Formats of up to 4
/// bits have a higher learning rate, and static integer activations of up to 4 bits the rate of float
/// training. Rates with a teacher are lower again; more bits give a lower rate.
[[nodiscard]] QatDefaults qat_defaults(const QuantConfig& config);

/// Returns the learning rate of a run of `steps`: rate * (steps / full_rate_steps)^2 up to `rate`, and at
/// least 1e-4 (or `rate`, if that is less). Few steps at a high rate end below calibration alone.
[[nodiscard]] double short_run_rate(double rate, std::int64_t steps, std::int64_t full_rate_steps) noexcept;

/// User values that replace defaults of a preset (QatDefaults).
struct PresetChoices {
  std::optional<std::string> weight_method = {};  ///< calibration method of weights, a calib_method
  /// Bits of integers in the first and the last layer, 2 to 16. 8 with blocks of 4-bit floats, where those
  /// layers have E4M3. 0 for the bits of the preset.
  std::optional<std::int64_t> edge_bits = {};
};

/// Returns the config of a preset for `fakequant calibrate` and `qat`: the preset with `algorithm` and
/// `rules` of its QatDefaults, if they differ. Throws ArgumentError for an unknown preset, for edge_bits out
/// of range, and for edge_bits with a format that has none.
[[nodiscard]] nlohmann::ordered_json preset_config(const std::string& preset,
                                                   const PresetChoices& choices = {});

/// Returns a summary, for example "target ort, scale free; ranges by one_pass_mse; 8 bits in the first and
/// the last layer".
[[nodiscard]] std::string describe_choice(const QuantConfig& config);

/// User values that replace QatDefaults.
struct TrainingChoices {
  std::optional<AmaxMode> amax = {};
  std::optional<AmaxGradient> amax_gradient = {};
  std::optional<bool> learn_weight_ranges = {};
  std::optional<double> amax_rate = {}, learning_rate = {};
  /// Fields `kind`, `temperature` and `weight` of DistillationOptions.
  std::optional<std::string> distillation_kind = {};
  std::optional<double> temperature = {}, teacher_share = {};
};

/// Sets ranges, rates and teacher of `options` to the defaults of `config`, except for `choices`. `self`
/// means that the teacher is the same network in float; `text` that samples are texts (`is_text`). Both have
/// rates of their own. Weight and temperature of the teacher change only if `self` and `text` are set.
/// Low-rank adapters keep the calibrated ranges and have a rate of their own.
void complete_training(TrainerOptions& options, const QuantConfig& config,
                       const TrainingChoices& choices = {}, bool self = false, bool text = false);

/// Returns a summary, for example "ranges learned (lsq), of weights too; learning rate 0.004; towards the
/// float network (kl, temperature 2), a share of 1".
[[nodiscard]] std::string describe_training(const TrainerOptions& options, bool self);

/// Returns whether samples are rows of token ids with a class for each token.
[[nodiscard]] bool is_text(const Dataset& data);
/// Returns the float accuracy, 0 to 1, on up to 512 samples with one class each.
[[nodiscard]] double float_accuracy(Module& model, const std::shared_ptr<const Dataset>& data);
/// Returns whether a float accuracy on training data is at least 99 %. The labels then add only noise, and
/// distillation from the float network is better.
[[nodiscard]] bool has_memorized_training_data(double accuracy) noexcept;
/// Returns whether the float network is the teacher by default. On `text`, it is if
/// QatDefaults::text_teacher_share is above 0. On other data, it is if `accuracy` shows that it memorized the
/// training data.
[[nodiscard]] bool follows_itself(const QuantConfig& config, double accuracy, bool text);

}  // namespace fq
