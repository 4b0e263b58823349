#pragma once

/// Chooses a format for each layer: the smallest loss of quality within a budget of bits, or the fewest bits
/// within a budget of accuracy.
///
///     DataLoader samples(data, {.batch_size = 64, .shuffle = false});
///     const QuantizationPlan plan = auto_quantize(model, samples, {.constraint = {.effective_bits = 5.0}});
///     plan.save("plan.json");  // the model is quantized and calibrated now
///     quantize(*float_network, QuantizationPlan::load("plan.json").quant_config(), {1, 3, 32, 32});

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/sensitivity/sensitivity.h"

namespace fq {

/// Bits and damage of a format for a layer.
struct FormatScore {
  std::string format;  ///< name of a preset, or "none"
  double bits = 0;     ///< bits of a weight element; 0 for a layer without a weight
  Damage damage;       ///< damage if only this layer is quantized
};

/// A layer, its chosen format, and the scores of all formats.
struct PlannedLayer {
  std::string layer;                     ///< path of the layer
  std::string type;                      ///< type of the float module, "conv2d"
  std::int64_t weights = 0;              ///< elements of the weight; 0 without a weight
  int group = 0;                         ///< group number; layers of a group have the same format
  std::string format;                    ///< chosen format
  std::vector<FormatScore> scores = {};  ///< score of each format, in the order of the plan's formats

  /// Returns the score of the chosen format.
  [[nodiscard]] const FormatScore& chosen() const;
};

/// Constraint of the search. Set one of the two fields.
struct PlanConstraint {
  std::optional<double> effective_bits = {};   ///< largest number of bits per weight
  std::optional<double> accuracy_budget = {};  ///< largest drop of accuracy against float, 0 to 1
};

/// Result of the search. It refers to no model, and its file can be edited by hand.
struct QuantizationPlan {
  std::vector<PlannedLayer> layers;  ///< in the order of execution
  std::vector<std::string> formats;  ///< formats to choose from
  /// Constraint of the search.
  PlanConstraint constraint;
  DamageScore score = DamageScore::divergence;  ///< score whose sum over the layers was minimized
  double effective_bits = 0;                    ///< sum of weights * bits, divided by the sum of weights
  double gap = 0;               ///< largest distance of the sum of scores from the minimum; 0 if exact
  Evaluation reference;         ///< result of the float network
  Damage predicted;             ///< sums of damage over the layers
  Damage measured;              ///< damage of the whole network with this plan
  std::int64_t samples = 0;     ///< samples that the scores were measured on
  std::int64_t layer_runs = 0;  ///< computed layer calls, as in SensitivityReport
  std::int64_t pass_runs = 0;
  std::string config;  ///< quantization config (JSON) with the format of each layer

  /// Returns the config for `quantize`, with the format of each layer. Calibrate the ranges afterwards.
  [[nodiscard]] QuantConfig quant_config() const;

  /// Returns the plan as JSON, described in docs/formats.md.
  [[nodiscard]] nlohmann::ordered_json to_json() const;
  /// Returns the plan of such JSON. Throws ArgumentError naming a key that is missing or has another type.
  [[nodiscard]] static QuantizationPlan from_json(const nlohmann::ordered_json& json);
  /// Writes the JSON to a file, completely or not at all. Throws FileError if the path cannot be written.
  void save(const std::string& path) const;
  /// Reads a file of `save`. Throws FileError for a path that cannot be read and, naming the line, for a text
  /// that is not a plan.
  [[nodiscard]] static QuantizationPlan load(const std::string& path);
};

/// Options of auto_quantize.
struct AutoQuantizeOptions {
  PlanConstraint constraint;  ///< one of the two constraints
  /// Names of presets (also ModelOpt's constants), and "none" for layers that stay float.
  std::vector<std::string> formats = {"w4a8", "int8", "none"};
  /// Quantization config (JSON) without a preset: target, scale, arithmetic and algorithm of every format.
  /// Rules of the config override the rules of each format, for example
  /// `{"rules": [{"pattern": "fc.*", "enable": false}]}`.
  std::string config = "{}";
  std::int64_t calibration_samples = 512;  ///< number of samples from the beginning of epoch 0; 0 for all
  /// Samples for measuring damage, from the beginning of epoch 0; 0 for all.
  std::int64_t score_samples = 0;
  /// Score whose sum over the layers is minimized. Divergence needs no labels and is never negative. With the
  /// loss, a layer whose quantization lowers the loss counts as a gain, even if predictions get worse.
  DamageScore score = DamageScore::divergence;
  bool cached = true;  ///< see SensitivityOptions::cached
  /// Ranks that share the measurements; each rank calibrates by itself.
  std::shared_ptr<Communicator> ranks = {};
};

/// Calibrates a float model in each format, measures the damage of each layer in each format alone, as
/// `sensitivity` does, and chooses a format for each layer.
///
/// With `effective_bits`, it chooses the formats with the smallest sum of scores within that number of bits.
/// Bits are sum(weights * weight_bits) / sum(weights) over the layers that any format quantizes (ModelOpt's
/// definition; biases are not counted). With `accuracy_budget`, it searches the best choices for each number
/// of bits by bisection. It measures the whole network, and takes the fewest bits whose measured loss of
/// accuracy is within the budget. The bisection assumes that accuracy rises with bits. Layers that read one
/// tensor, or whose ranges an engine ties, get one format. An addition or average, if no other layer reads
/// its tensors, gets the format of the layer before it.
///
/// The choice is exact unless the plan's `gap` is above 0. The sum of scores is a prediction, because layers
/// are measured alone; `measured` is the damage of the whole network. The model is then quantized and
/// calibrated: the same as after `quantize` with `plan.quant_config()` and `calibrate` on the same samples.
/// Cost: one calibration per format and one float pass. In addition, for each layer and format, one pass
/// over the layers after it.
///
/// Throws ArgumentError unless there is exactly one constraint, in range. Throws ArgumentError for fewer bits
/// than the formats reach (naming the smallest number), and for an accuracy budget that no choice reaches.
/// Throws ArgumentError without formats, and for a repeated or unknown format (with a suggestion). Throws
/// ArgumentError for a quantized model, and for missing labels that the score or the constraint requires.
/// Also throws as `quantize`, `calibrate` and `sensitivity` do. After an error, the model is unchanged.
[[nodiscard]] QuantizationPlan auto_quantize(Module& model, DataLoader& data,
                                             const AutoQuantizeOptions& options);

/// Throws what auto_quantize would throw for the options, the model and its formats. Uses no data, and
/// calibrates and measures nothing. Does not change the model.
void check_auto_quantize(Module& model, const Shape& input_shape, const AutoQuantizeOptions& options);

}  // namespace fq
