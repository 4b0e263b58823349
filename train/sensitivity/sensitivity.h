#pragma once

/// Measures on data how much the network loses if one layer alone is quantized.
///
///     quantize(model, QuantConfig::preset("w4a4"), {1, 3, 32, 32});
///     calibrate(model, loader, {.samples = 512});
///     for (const LayerSensitivity& layer : sensitivity(model, loader, {.samples = 512}).layers)
///       std::cout << layer.layer << ": loss " << layer.damage.loss_change << '\n';

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/loop/evaluate.h"

namespace fq {

/// Change of a network's results by quantization: its values minus the values of the float network on the
/// same data. Without labels, the first two are NaN.
struct Damage {
  double loss_change = 0;      ///< change of the mean cross entropy; negative if quantization helps
  double accuracy_change = 0;  ///< change of the accuracy, -1 to 1; negative if quantization hurts
  double divergence = 0;       ///< mean over samples of KL(softmax(float logits) || softmax(logits)), in nats
};

/// Measure for comparing damage. Divergence needs no labels and is never negative.
enum class DamageScore { loss, divergence };

/// Damage of quantizing one layer.
struct LayerSensitivity {
  std::string layer;         ///< path of the module that owns the quantizers
  std::string type;          ///< type of that module, "quant_conv2d"
  std::string format;        ///< formats of the codes: "weight int8, input uint8"
  std::int64_t weights = 0;  ///< elements of the weight; 0 without a weight
  double bits = 0;           ///< bits of a weight element (weight_bits); 0 without a weight
  Damage damage;
};

/// Options of `sensitivity`.
struct SensitivityOptions {
  std::int64_t samples = 0;  ///< number of samples from the beginning of epoch 0; 0 for all
  /// Order of the layers; divergence if there are no labels.
  DamageScore order = DamageScore::loss;
  /// Whether results of modules are cached between passes. Set it to false for modules whose output depends
  /// on more than inputs, parameters, buffers and the modules below them: each layer then needs a whole pass.
  bool cached = true;
  /// Ranks that share the layers, each with a loader of all data; null for one process. All ranks make the
  /// call and get the same report.
  std::shared_ptr<Communicator> ranks = {};
};

/// Result of `sensitivity`, and its cost.
struct SensitivityReport {
  std::vector<LayerSensitivity> layers;  ///< largest damage first; equal ones in the order of the module tree
  Evaluation reference;                  ///< result of the float network; zeros without labels
  std::int64_t samples = 0;
  std::int64_t layer_runs = 0;  ///< computed calls of these layers, the float passes included
  std::int64_t pass_runs = 0;   ///< calls of these layers in one float pass over the data

  /// Returns the report as JSON, described in docs/formats.md.
  [[nodiscard]] nlohmann::ordered_json to_json() const;
};

/// Measures each layer of a calibrated model alone: its own quantizers of weight, inputs and output are on,
/// all others are off. A quantizer that layers share is on only in the measured layer. A layer is a module
/// that owns an enabled quantizer. Loss and accuracy have the same bits as from `evaluate`, in evaluation
/// mode. The model is unchanged afterwards, also after an exception. Do not use it during the call.
///
/// Cost: for each batch one float pass, and for each layer the part of the network after it. Results of
/// modules in the float pass are reused for equal inputs, before the layer and on parallel branches. This
/// works in sequences, graphs and custom modules; only operators that a custom module calls itself are
/// computed again. Memory: all float values between modules for one batch, in addition to one evaluation.
///
/// Throws ArgumentError if there is no data, for a negative number of samples, and for labels out of range.
/// Throws ArgumentError for a model without enabled quantizers, with compressed weights, or with a quantizer
/// that is not calibrated. Throws NumericError naming the batch if the data or the float output has NaN or
/// infinity.
[[nodiscard]] SensitivityReport sensitivity(Module& model, DataLoader& data,
                                            const SensitivityOptions& options = {});

/// Bits of a weight that stays float, the same as in ModelOpt.
inline constexpr double kFloatWeightBits = 16;

/// Returns the bits of an element of a module's weight: the bits of its codes, and of 8-bit block scales
/// (NVFP4: 4 + 8/16). Other scales are not counted, the same as in ModelOpt. Returns kFloatWeightBits if the
/// weight is not quantized.
[[nodiscard]] double weight_bits(const Module& layer);

}  // namespace fq
