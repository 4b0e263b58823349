#pragma once

/// auto_quantize: a format for each layer, so that the network loses least within a budget of bits, or has
/// fewest bits within a budget of accuracy.
///
///     DataLoader samples(data, {.batch_size = 64, .shuffle = false});
///     const QuantizationPlan plan = auto_quantize(model, samples, {.constraint = {.effective_bits = 5.0}});
///     plan.save("plan.json");  // the model is quantized and calibrated by it already

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/sensitivity/plan.h"

namespace fq {

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
