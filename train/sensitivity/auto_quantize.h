#pragma once

/// auto_quantize: chooses a format for each layer, so that the network loses least within a budget of bits,
/// or has the fewest bits within a budget of accuracy.
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

/// Cost of a format for a layer.
struct FormatScore {
  std::string format;  ///< name of a preset, or "none"
  double bits = 0;     ///< of an element of the layer's weight; 0 without one
  Damage damage;       ///< with this layer alone quantized
};

/// One layer, the format that it gets, and what every format would cost it.
struct PlannedLayer {
  std::string layer;                     ///< path
  std::string type;                      ///< of the float module, "conv2d"
  std::int64_t weights = 0;              ///< elements of its weight; 0 without one
  int group = 0;                         ///< layers of one group have one format
  std::string format;                    ///< the one chosen
  std::vector<FormatScore> scores = {};  ///< of each format, in the order of the plan's

  /// The score of the format that was chosen.
  [[nodiscard]] const FormatScore& chosen() const;
};

/// Constraint of the search: one of the two values.
struct PlanConstraint {
  std::optional<double> effective_bits = {};   ///< at most
  std::optional<double> accuracy_budget = {};  ///< largest drop of accuracy against float, 0 to 1
};

/// The choice and what it was made by. A value: it refers to no model, and its file can be edited by hand.
struct QuantizationPlan {
  std::vector<PlannedLayer> layers;  ///< in the order of execution
  std::vector<std::string> formats;  ///< that there were to choose from
  /// What was asked for.
  PlanConstraint constraint;
  DamageScore score = DamageScore::divergence;  ///< whose sum was made least
  double effective_bits = 0;                    ///< sum of weights * bits over the sum of weights
  double gap = 0;               ///< the sum of scores is that much above the least, or less; 0: exact
  Evaluation reference;         ///< of the network in float
  Damage predicted;             ///< the sums over the layers
  Damage measured;              ///< of the whole network with this plan
  std::int64_t samples = 0;     ///< that scores were measured on
  std::int64_t layer_runs = 0;  ///< as in SensitivityReport
  std::int64_t pass_runs = 0;
  std::string config;  ///< a quantization config (JSON) that gives each layer its format

  /// The config for `quantize`, which gives each layer its format; ranges are then calibrated as usual.
  [[nodiscard]] QuantConfig quant_config() const;

  /// The plan as JSON, as docs/formats.md says.
  [[nodiscard]] nlohmann::ordered_json to_json() const;
  /// The plan of such JSON. Throws ArgumentError naming the key that is missing or of another type.
  [[nodiscard]] static QuantizationPlan from_json(const nlohmann::ordered_json& json);
  /// Writes a file of that JSON, as a whole or not at all. Throws FileError for a path that cannot be
  /// written.
  void save(const std::string& path) const;
  /// Reads such a file. Throws FileError for a path that cannot be read and, naming the line, for a text that
  /// is no plan.
  [[nodiscard]] static QuantizationPlan load(const std::string& path);
};

/// What is searched, and what the result must keep to.
struct AutoQuantizeOptions {
  PlanConstraint constraint;  ///< one of the two
  /// Names of presets, of ours or ModelOpt's constants, and "none" for layers that stay float.
  std::vector<std::string> formats = {"w4a8", "int8", "none"};
  /// A quantization config (JSON) without a preset: target, scale, arithmetic and algorithm of every format,
  /// and rules that win over each format's own, as `{"rules": [{"pattern": "fc.*", "enable": false}]}`.
  std::string config = "{}";
  std::int64_t calibration_samples = 512;  ///< the first ones of epoch 0; 0: all
  std::int64_t score_samples = 0;          ///< likewise, of which damage is measured
  /// Whose sum over the layers is made least. Divergence needs no labels and is never negative; a loss that
  /// falls where an answer gets worse (of a network that is not sure enough) counts as a gain.
  DamageScore score = DamageScore::divergence;
  bool cached = true;                        ///< as in SensitivityOptions
  std::shared_ptr<Communicator> ranks = {};  ///< likewise, for what is measured; calibration each rank makes
};

/// Calibrates a float model in each format, measures the damage of each layer in each format alone, as
/// `sensitivity` does, and chooses.
///
/// With `effective_bits` it takes the formats whose sum of scores is least among those with no more bits,
/// sum(weights * weight_bits) / sum(weights) over the layers that any format quantizes (ModelOpt's
/// definition; biases are not counted). With `accuracy_budget` it goes through the best choices of every
/// number of bits by bisection, measures the whole network, and takes the fewest bits that were measured to
/// lose no more: in a network whose accuracy falls as bits fall, the fewest there are. Layers that read one
/// tensor, or whose ranges an engine ties, get one format; an addition or average whose tensors no other
/// layer reads goes with the layer before it.
///
/// The choice is exact unless the plan's `gap` says otherwise. The sum of scores is a prediction, since
/// layers are measured alone; `measured` is what the whole network does. The model is left quantized and
/// calibrated by the plan, as `quantize` by `plan.quant_config()` and `calibrate` on the same samples leave
/// it. Cost: a calibration for each format, then a float pass and what lies behind each layer for each
/// format.
///
/// Throws, with the model as before: ArgumentError for both constraints or none, a number out of range, fewer
/// bits than the formats reach (saying which number they do), an accuracy that none reaches, no formats, one
/// given twice and unknown ones (naming the nearest), a model that is quantized, data without labels where
/// they are needed; and as `quantize`, `calibrate` and `sensitivity`.
[[nodiscard]] QuantizationPlan auto_quantize(Module& model, DataLoader& data,
                                             const AutoQuantizeOptions& options);

/// Throws what auto_quantize would throw for the options, the model and what its formats reach, without
/// data: nothing is calibrated or measured. The model is as before.
void check_auto_quantize(Module& model, const Shape& input_shape, const AutoQuantizeOptions& options);

}  // namespace fq
