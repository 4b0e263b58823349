#pragma once

/// Sensitivity: what quantizing one layer alone costs the network, measured on data.
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

/// How much quantization changes what a network says: its values minus those of the same network in float, on
/// the same data. Without labels the first two are NaN.
struct Damage {
  double loss_change = 0;      ///< of the mean cross-entropy; negative where quantization helps
  double accuracy_change = 0;  ///< of the share that is right, -1 to 1; negative where quantization hurts
  double divergence = 0;       ///< mean over samples of KL(softmax(float logits) || softmax(logits)), nats
};

/// By which number damage is compared. Divergence needs no labels and is never negative.
enum class DamageScore { loss, divergence };

/// What quantizing one layer costs.
struct LayerSensitivity {
  std::string layer;         ///< path of the module that owns the quantizers
  std::string type;          ///< of that module, "quant_conv2d"
  std::string format;        ///< of the codes: "weight int8, input uint8"
  std::int64_t weights = 0;  ///< elements of its weight; 0 without one
  double bits = 0;           ///< of such an element: see weight_bits; 0 without one
  Damage damage;
};

/// How sensitivity is measured.
struct SensitivityOptions {
  std::int64_t samples = 0;  ///< the first ones of epoch 0; 0: all
  /// What the layers are sorted by; divergence where there is no label.
  DamageScore order = DamageScore::loss;
  /// Off: a whole pass for each layer. For models with modules whose output depends on more than inputs,
  /// parameters, buffers and the modules below them.
  bool cached = true;
  /// Who shares out the layers with this process, each with a loader of all the data; null for nobody. All of
  /// them make the call, and have the same report.
  std::shared_ptr<Communicator> ranks = {};
};

/// What was measured, and what it took.
struct SensitivityReport {
  std::vector<LayerSensitivity> layers;  ///< the worst first; equal ones in the order of the module tree
  Evaluation reference;                  ///< of the network in float; zeros without labels
  std::int64_t samples = 0;
  std::int64_t layer_runs = 0;  ///< calls of these layers that were computed, the float passes included
  std::int64_t pass_runs = 0;   ///< calls of these layers in one float pass over the data

  /// The report as JSON, as docs/formats.md says.
  [[nodiscard]] nlohmann::ordered_json to_json() const;
};

/// Quantizes each layer of a calibrated model alone: its quantizers of weight, inputs and output on, all
/// others off, also where a quantizer is shared with other layers. A layer is a module that owns a quantizer
/// that is enabled. Loss and accuracy are those of `evaluate`, in evaluation mode, bit for bit. The model is
/// as before when it ends, also by an exception, and may not be used meanwhile.
///
/// Cost: for each batch one float pass, and for each layer what lies behind it. What modules gave in the
/// float pass is taken again wherever their inputs are the same: on branches beside the layer as before it,
/// in sequences, graphs and modules of a user's own, between whose calls only plain operators are computed
/// again. Memory: all values between modules of one batch, in float, besides one evaluation.
///
/// Throws ArgumentError when there is no data, for a negative number of samples, a model without an enabled
/// quantizer or with compressed weights, naming a quantizer that is not calibrated, and for labels out of
/// range; NumericError naming the batch for a NaN or infinity in the data or the float output.
[[nodiscard]] SensitivityReport sensitivity(Module& model, DataLoader& data,
                                            const SensitivityOptions& options = {});

/// Bits that a weight counts with where it stays float, as ModelOpt counts.
inline constexpr double kFloatWeightBits = 16;

/// Bits of an element of a module's weight: those of its codes, and of block scales that are themselves of 8
/// bits (NVFP4: 4 + 8/16). Other scales are not counted, as ModelOpt counts. kFloatWeightBits where the
/// weight is not quantized.
[[nodiscard]] double weight_bits(const Module& layer);

}  // namespace fq
