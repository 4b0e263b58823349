#pragma once

/// Calibration and quantization-aware training of a network.
///
///     Network network = Network::load("float.h5");
///     QatOptions options;
///     options.config = "w4a8";
///     options.training.epochs = 5;
///     qat(network, data, options);
///     network.save("w4a8.h5");
///
/// Without training:
///
///     fold_and_quantize(network, preset_config("w4a8"));
///     calibrate(network, data, {.samples = 512});

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/network/network.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/calibration/calibration_report.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/loop/trainer.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/qat_defaults.h"
#include "fakequant/train/sensitivity/auto_quantize.h"

namespace fq {

/// Samples and settings of `calibrate`. The config of the network has methods, rules and algorithms.
struct NetworkCalibrateOptions {
  std::int64_t samples = 512;  ///< number of samples, drawn by seed 0; 0 for all
  LoaderOptions batches = {.batch_size = 64, .shuffle = false};
  std::string method = {};                ///< replaces the methods of activations in the config
  std::optional<double> percentile = {};  ///< replaces the percentile of the config
  BatchMask mask = {};                    ///< padding that observers do not see
  bool keep_known = false;                ///< quantizers that have a range keep it
  /// Calibration states (train/calibration/calibration_state.h) to merge before the data is observed. Their
  /// samples are not observed again.
  std::vector<std::string> states = {};
  bool keep_shares = false;  ///< returns what identifies the samples, for `save_calibration`
  /// Processes that share the batches; null for one.
  std::shared_ptr<Communicator> ranks = {};
  /// Called with progress as text.
  std::function<void(const std::string& line)> progress_callback = {};
  /// Called after each half of an algorithm on weights.
  std::function<void(const std::string& algorithm, const ptq::Report&)> weights_callback = {};
};

/// The samples that observers have seen.
struct CollectedSamples {
  std::int64_t count = 0;
  std::vector<CalibrationShare> shares;  ///< sorted; empty without states and `keep_shares`
  CalibrationReport report = {};         ///< counts of this call, without states
};

/// Folds batch norm, unless it is folded already or to be kept, and places quantizers.
void fold_and_quantize(Network& network, const nlohmann::ordered_json& config, bool keep_batch_norm = false);

/// Chooses the ranges of a quantized network: merges states, observes the data (null for states alone),
/// chooses ranges and adjusts them by the postprocess of the config. The config's algorithm on weights runs
/// on the same samples. Throws ArgumentError as `fq::calibrate`, for states that have samples in common, and
/// for an algorithm that changes no layer.
CollectedSamples calibrate(Network& network, std::shared_ptr<const Dataset> data,
                           const NetworkCalibrateOptions& options = {});

/// Gives each layer of a float network a format (train/sensitivity/auto_quantize.h). The network is then
/// quantized and calibrated by the plan, which its identity keeps.
QuantizationPlan auto_quantize(Network& network, DataLoader& data, const AutoQuantizeOptions& options);

/// Reads a quantization config: JSON text, or the name of a preset, which `choices` complete
/// (preset_config). Throws ArgumentError for choices with JSON text.
[[nodiscard]] nlohmann::ordered_json quantization_config(const std::string& name_or_json,
                                                         const PresetChoices& choices = {});

/// Returns the training options of `fakequant qat`: weight decay 0.01 and the schedule one_cycle.
[[nodiscard]] TrainerOptions qat_training(std::int64_t epochs = 10);

struct QatOptions {
  /// How a float network is quantized: name of a preset or JSON text. Not used for a quantized network.
  std::string config = "int8";
  PresetChoices preset = {};
  std::optional<std::string> target = {}, scale = {};  ///< replace target and scale of the config
  bool keep_batch_norm = false;
  NetworkCalibrateOptions calibration = {};
  LoaderOptions batches = {.drop_last = true};  ///< batches of training
  TrainerOptions training = qat_training();
  TrainingChoices choices = {};  ///< values that replace the defaults of the format
  /// Whether the network's own float outputs are its teacher. By default `follows_itself` decides.
  std::optional<bool> self_distillation = {};
  bool measure = false;  ///< computes the accuracies of QatResult
  std::shared_ptr<DataLoader> validation = {};
  TrainerCallbacks callbacks = {};
  /// Called with one line about the format and one about the training, before each begins.
  std::function<void(const std::string& line)> choice_callback = {};
  /// Resumes a run: loads the values of its checkpoint, after the teacher was copied. A float network is
  /// quantized, but not calibrated.
  std::function<void(Network& network)> restore = {};
};

/// Accuracies on up to 512 training samples, 0 to 1.
struct SampleAccuracy {
  double in_float = 0;   ///< with quantizers switched off
  double quantized = 0;  ///< with quantizers on; equal to `in_float` if quantizers have no ranges
  double chance = 0;     ///< of the most frequent class
  std::int64_t images = 0;

  /// Whether less than a quarter of the way from chance to `in_float` is left.
  [[nodiscard]] bool near_chance() const;
  /// Whether the accuracy fell from `before` by more than the noise of training.
  [[nodiscard]] bool lost(const SampleAccuracy& before) const;
  /// "87.1 % of 512 training samples right, 99.8 % in float".
  [[nodiscard]] std::string text() const;
};
/// Measures a network, which stays unchanged. Returns nothing unless each sample has one class.
[[nodiscard]] std::optional<SampleAccuracy> sample_accuracy(const Network& network,
                                                            const std::shared_ptr<const Dataset>& data);

/// Training options of a run and choices of `prepare_qat`.
struct QatPlan {
  TrainerOptions training;
  bool self_distillation = false;
  std::optional<SampleAccuracy> before = {};  ///< with QatOptions::measure
};
struct QatResult {
  TrainingResult training = {};
  bool self_distillation = false;
  std::optional<SampleAccuracy> before = {}, after = {};  ///< with QatOptions::measure
};

/// Whether the float outputs of the network should be its teacher by default: for plain cross entropy, if the
/// network has memorized the training data or, on text, if the format is coarser than 8-bit integers.
/// `accuracy` is the float accuracy on training samples; computed if not given.
[[nodiscard]] bool follows_itself(const Network& network, const std::shared_ptr<const Dataset>& data,
                                  std::optional<double> accuracy = {});
/// Returns the kind of distillation for the outputs of the network: kl for classes, mse for numbers.
[[nodiscard]] std::string distillation_kind(const Network& network);

/// Does all of `qat` but the training: folds, quantizes and calibrates a float network, copies the teacher,
/// restores a run, completes the training options by the format. Throws ArgumentError for a quantizer without
/// a range.
[[nodiscard]] QatPlan prepare_qat(Network& network, const std::shared_ptr<const Dataset>& data,
                                  const QatOptions& options);
/// Fine-tunes a network with its quantizers on; a float network is quantized and calibrated first. Gives the
/// bits of `fakequant qat` for the same options.
QatResult qat(Network& network, const std::shared_ptr<const Dataset>& data, const QatOptions& options = {});

/// Completes training options by the network: its identity for checkpoints, and loss and metrics of its task
/// unless they are given.
void complete_training(TrainerOptions& options, const Network& network, const Dataset& data);
/// Trains a network.
TrainingResult fit(Network& network, const std::shared_ptr<DataLoader>& batches, TrainerOptions options,
                   std::shared_ptr<DataLoader> validation = nullptr, TrainerCallbacks callbacks = {});

/// Throws ArgumentError naming the enabled quantizers without a range.
void check_calibrated(const Network& network, const std::string& function);
/// Returns the quantizers that cannot work on 64 samples of `data`, which may be null; none if ranges are
/// missing.
[[nodiscard]] std::vector<QuantizerFinding> quantizer_findings(const Network& network,
                                                               const std::shared_ptr<const Dataset>& data);
/// Returns why a calibrated network cannot be exported to ONNX for its target: an operator or the grid of an
/// activation (check_onnx_export). Empty if there is no reason, or if the target has no ONNX.
[[nodiscard]] std::string export_problem(const Network& network);

}  // namespace fq
