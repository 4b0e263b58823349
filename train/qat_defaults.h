#pragma once

/// QatDefaults: how a network of a format is calibrated and fine-tuned where nobody asks for something else.
/// The values that had the best accuracy in docs/benchmarks/low_bits.md.

#include <string>
#include <vector>

#include "fakequant/layers/config/quant_config.h"
#include "fakequant/train/loop/trainer.h"

namespace fq {

/// Choices that depend on how many bits a format has.
struct QatDefaults {
  int bits = 8;                       ///< the fewest of a weight or an activation
  int activation_bits = 8;            ///< the fewest of an activation
  std::string method = "max";         ///< calibration of activations, a calib_method
  std::string weight_method = "max";  ///< calibration of weights, a calib_method
  int edge_bits = 0;                  ///< bits of the first and the last layer; 0 for those of the format
  /// Which quantizers of every layer have static integers: "weight_quantizer", "input_quantizer".
  std::vector<std::string> integers = {};
  /// Which of these have integers of 3 bits and fewer in fixed blocks; the edges have a range for each
  /// channel.
  std::vector<std::string> integer_blocks = {};
  /// Which of these, where activations too have floats of 4 bits in blocks, which the edges have in E4M3.
  std::vector<std::string> float_blocks = {};
  /// Whether additions that only operators of floats read (`@residual`) stay floats: where activations are
  /// quantized and the engine would add their codes.
  bool float_residuals = false;
  AmaxMode amax = AmaxMode::frozen;  ///< ranges of activations in training
  AmaxGradient amax_gradient = AmaxGradient::clip;
  bool learn_weight_ranges = false;
  double amax_rate = 1;         ///< learning rate of learned ranges over that of the other parameters
  double learning_rate = 1e-4;  ///< the highest of the schedule, for adamw
  /// The same towards what the network itself says in float (train/distillation.h).
  double distilled_learning_rate = 1e-4;
  /// The same on text (`is_text`, train/qat_training.h), of which no network knows all.
  double text_learning_rate = 3e-4;
  /// Number of steps of the runs that have these rates. Shorter runs have `short_run_rate`. 0 if every run
  /// has these rates.
  std::int64_t full_rate_steps = 0;
  /// The share of the loss, on text, that follows what the network itself says in float; the labels have the
  /// rest. 0 for integers of 8 bits alone.
  double text_teacher_share = 0;
  double text_temperature = 1;  ///< of both outputs then
  /// Whether ranges of activations stay on text, and those of weights are learned at a tenth of the rate:
  /// with 4 bits of weights beside more of activations.
  bool text_keeps_activations = false;
};

/// Those for the rules of `config`. Static integers of 4 bits and fewer, in blocks of 3, have few levels to
/// waste and a grid that must move with what is trained: ranges of least squared error, trained as steps of
/// their grid (Esser et al. 2020), and 8 bits in the first and the last layer, as have blocks of 4-bit floats
/// (E4M3 with a range for the tensor). Weights of fixed blocks of 4-bit integers have such ranges alone, by
/// search. Formats of 4 bits and fewer have a higher rate, and that of float training where static integers
/// of activations have so few; towards a teacher a lower one again, the lower the more bits. Rules that
/// switch a quantizer off, and those of edges (`@first`, `@last`) and of what attention multiplies
/// (`*bmm_quantizer`), do not count.
[[nodiscard]] QatDefaults qat_defaults(const QuantConfig& config);

/// The learning rate of a run of `steps`: rate * (steps / full_rate_steps)^2 up to `rate`, and at least 1e-4
/// (or `rate`, if that is less). Few steps at a high rate end below calibration alone.
[[nodiscard]] double short_run_rate(double rate, std::int64_t steps, std::int64_t full_rate_steps) noexcept;

}  // namespace fq
