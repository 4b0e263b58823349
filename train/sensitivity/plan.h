#pragma once

/// QuantizationPlan: which format each layer of a network gets, and why. `auto_quantize` makes it.
///
///     const QuantizationPlan plan = QuantizationPlan::load("plan.json");
///     quantize(model, plan.quant_config(), {1, 3, 32, 32});  // a float model; calibrate it then

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/layers/config/quant_config.h"
#include "fakequant/train/sensitivity/sensitivity.h"

namespace fq {

/// What one format costs one layer.
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

/// What the search was asked for: one of the two is set, the other is empty.
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

}  // namespace fq
