#pragma once

/// Algorithms that change weights, biases and ranges so that a network loses less by quantization, without
/// training.
///
/// Each algorithm changes a quantized model and returns a report with one entry per layer. Run `equalize`,
/// `smooth_quant` and `awq_lite` before calibration, because they change the calibrated values. Run
/// `awq_clip`, `gptq`, `ada_round` and `correct_bias` after calibration. The model must be on the CPU.
/// ptq::Algorithm, at the end of this header, runs the algorithm that a QuantConfig names, and moves the
/// model to the CPU meanwhile.
///
///     quantize(model, QuantConfig::preset("w4a8"), {1, 3, 32, 32});
///     ptq::smooth_quant(model, loader);
///     calibrate(model, loader);
///     for (const auto& layer : ptq::gptq(model, loader).layers)
///       std::cout << layer.path << ": " << layer.before << " -> " << layer.after << '\n';
///
/// With `ranks`, each process passes a loader of its own batches (share_of_rank). All processes get the
/// result of a single process, because sums over data are binned (train/ranks/detail/binned_sum.h).

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::ptq {

/// A changed layer. `before` and `after` are the error that the algorithm reduces; the comment of the
/// algorithm defines it after "Reported:". NaN if the algorithm measures no error.
struct LayerReport {
  /// Module path of the layer.
  std::string path;
  double before = 0, after = 0;
};

/// A layer that the algorithm did not change.
struct SkippedLayer {
  std::string path;
  std::string reason;  ///< for example "has no bias"
};

/// Result of an algorithm.
struct Report {
  std::vector<LayerReport> layers;    ///< changed layers, in the order of execution
  std::vector<SkippedLayer> skipped;  ///< unchanged layers
};

/// Stopping rule of `equalize`.
struct EqualizeOptions {
  int iterations = 20;      ///< largest number of passes
  double tolerance = 1e-3;  ///< stops when no factor differs more from 1
};

/// Cross-layer equalization: balances the ranges of weights between consecutive layers, without data.
///
/// Divides output channel c of a layer, with its bias, by s_c = sqrt(r1_c / r2_c) and multiplies the weights
/// that read the channel by s_c. Both then have the range sqrt(r1_c * r2_c) (Nagel et al., "Data-Free
/// Quantization Through Weight Equalization and Bias Correction", 2019). r1_c is the largest magnitude of the
/// weights that make the channel, r2_c the largest magnitude of the weights that read it. Pairs are linear
/// layers and convolutions, including grouped convolutions, with only ReLU, leaky ReLU, pooling or flattening
/// between them in the graph. Repeats until the factors converge. Fold batch norm first. Channels whose
/// weights are 0 on either side do not change.
///
/// `model` may be quantized, but must not be calibrated yet. Its float output does not change, except for
/// rounding. Reported: the largest weight of the layer before times the largest weight of this layer, which
/// bounds the product of their quantization steps. Throws ArgumentError for options out of range and for a
/// calibrated model.
Report equalize(Module& model, const Shape& input_shape, const EqualizeOptions& options = {});

/// Strength of `smooth_quant`, and the data that it measures.
struct SmoothQuantOptions {
  double alpha = 0.5;                        ///< share of the activation range that moves, 0 to 1
  std::int64_t samples = 0;                  ///< number of images; 0 uses one epoch
  std::shared_ptr<Communicator> ranks = {};  ///< processes that share the data
};

/// SmoothQuant: moves outliers of activations into weights.
///
/// Divides input channel j of each linear layer and convolution by s_j = max|x_j|^alpha / max|w_j|^(1-alpha)
/// and multiplies the weights that read the channel by s_j (Xiao et al., arXiv:2211.10438). If all readers of
/// a layer or norm are such layers, directly or through ReLU, pooling and flattening, the division is folded
/// into its weights. Otherwise it becomes the pre_quant_scale of the input quantizer. Layers with a common
/// input share one s, computed from the largest values of each channel. Channels that are always 0, or whose
/// weights are 0, do not change.
///
/// `model` may be quantized, but must not be calibrated yet. Its float output does not change, except for
/// rounding. Makes one pass over the data. Reported: the largest |x| of the input divided by the mean of the
/// largest |x| of its channels. Throws ArgumentError if alpha is out of range, if there is no data, or if the
/// model is calibrated. Throws NumericError with the layer for a NaN.
Report smooth_quant(Module& model, DataLoader& data, const SmoothQuantOptions& options = {});

/// Search grid of `awq_lite`, and the data that it measures.
struct AwqLiteOptions {
  double alpha_step = 0.1;                   ///< step of the search over alpha, 0.001 to 1
  std::int64_t samples = 0;                  ///< number of images; 0 uses one epoch
  std::shared_ptr<Communicator> ranks = {};  ///< processes that share the data
};

/// AWQ scaling: quantizes the weights of important input channels more finely.
///
/// Multiplies the weights that read input channel j by s_j = (mean|x_j|)^alpha, divided by the square root of
/// the largest times the smallest s, and divides the channel by the same factor. Tries alpha = 0, step, .. 1
/// and keeps the alpha with the least squared error of the layer's output, with quantized weights and float
/// inputs (Lin et al., arXiv:2306.00978). alpha = 0 changes nothing, so no layer becomes worse on the data.
/// Divides channels and skips layers like `smooth_quant`. Layers with a common input share alpha.
///
/// Weights are quantized with their descriptors and ranges by calib_method. Makes one pass over the data.
/// Reported: the mean squared error of an output. Requirements and errors are the same as in `smooth_quant`.
Report awq_lite(Module& model, DataLoader& data, const AwqLiteOptions& options = {});

/// Search grid of `awq_clip`, and the data that it measures.
struct AwqClipOptions {
  double lowest = 0.5;                       ///< smallest share of a range, above 0 and at most 1
  double step = 0.05;                        ///< step of the search over shares, 0.001 or more
  std::int64_t samples = 0;                  ///< number of images; 0 uses one epoch
  std::shared_ptr<Communicator> ranks = {};  ///< processes that share the data
};

/// AWQ clipping: lowers ranges of weights if that reduces the output error.
///
/// Multiplies each range (of a tensor, a channel or a block) by one of the shares 1, 1 - step, .. lowest: the
/// one with the least squared error of this range's contribution to the output, with float inputs (Lin et
/// al., arXiv:2306.00978). Changes ranges only, no weights.
///
/// `model` must be calibrated. Makes one pass over the data. Reported: the mean squared error of an output.
/// Skips layers whose weights are not integers in fixed ranges, and reports them. Throws the errors of
/// `gptq`.
Report awq_clip(Module& model, DataLoader& data, const AwqClipOptions& options = {});

/// Order and damping of `gptq`, and the data that it measures.
struct GptqOptions {
  double damping = 0.01;                     ///< addition to H's diagonal, as a share of its mean; positive
  bool act_order = false;                    ///< rounds columns by falling diagonal of H, else in order
  std::int64_t samples = 0;                  ///< number of images; 0 uses one epoch
  std::shared_ptr<Communicator> ranks = {};  ///< processes that share data and layers
};

/// GPTQ: rounds weights column by column and compensates each error in the remaining columns.
///
/// Chooses the codes of linear layers and convolutions by second-order information (Frantar et al.,
/// arXiv:2210.17323). H = 2 X X^T of the layer's float inputs, damped, one H per convolution group.
/// inverse(H) = U^T U in f64. Column i takes its nearest code; its error divided by U_ii, times row i of U,
/// is subtracted from the columns after it. Codes are integers or floats. Ranges keep their calibrated
/// values, per tensor, channel or block, for any order of columns. Blocks with ranges computed from the
/// weights (MX, NVFP4) use the ranges of the original weights. The largest weight of an NVFP4 block keeps its
/// code, so that the block computes the same scale again.
///
/// The weights become code * scale, and the layer's quantizer maps them to the same codes: training, export
/// and evaluation need no change. Makes one pass over the data and measures all layers against the float
/// weights and inputs. A row (output channel) keeps its nearest codes if GPTQ does not reduce its error. Uses
/// at most 64 positions of each image. Reported: the mean squared error of an output. Skips and reports
/// layers whose weights have several quantizers, learned ranges, or other ranges that are computed at each
/// call.
///
/// Throws ArgumentError for options out of range, no data, and a model that is not calibrated. Throws
/// NumericError with the layer for a NaN.
Report gptq(Module& model, DataLoader& data, const GptqOptions& options = {});

/// Optimization settings of `ada_round`, and the data that it measures.
struct AdaRoundOptions {
  /// Adam steps per layer.
  int iterations = 300;
  double learning_rate = 0.02;               ///< of Adam, applied to V
  double regularization = 0.5;               ///< weight of the rounding term; the error counts 1 per weight
  double warmup = 0.2;                       ///< share of the iterations without the rounding term
  double beta_start = 20, beta_end = 2;      ///< exponent beta, annealed linearly
  std::int64_t samples = 0;                  ///< number of images; 0 uses one epoch
  std::shared_ptr<Communicator> ranks = {};  ///< processes that share data and layers
};

/// AdaRound: learns for each weight whether it is rounded down or up.
///
/// Codes are floor(w / scale) + h(V), where h is the sigmoid stretched to [-0.1, 1.1] and clamped to [0, 1]
/// (Nagel et al., arXiv:2004.10568). Adam learns V. The loss is the squared error of the layer's output,
/// relative to the error of the nearest codes, plus the rounding term: the sum of 1 - |2h - 1|^beta. beta
/// falls so that h ends at 0 or 1. The error over all data at once comes from E[x x^T] of the layer's float
/// inputs: one pass over the data for any number of iterations. In addition to the paper, single weights are
/// then rounded the other way as long as that lowers the error.
///
/// Weights, ranges, report and errors are handled as in `gptq`. Skips layers whose weights are not integers
/// in fixed ranges, and reports them.
Report ada_round(Module& model, DataLoader& data, const AdaRoundOptions& options = {});

/// Data that `correct_bias` measures.
struct BiasCorrectionOptions {
  std::int64_t samples = 0;                  ///< number of images; 0 uses one epoch
  std::shared_ptr<Communicator> ranks = {};  ///< processes that share the data
};

/// Bias correction: subtracts the mean shift caused by quantization from the bias.
///
/// Subtracts E[y_q - y] of each output channel from the bias of linear layers and convolutions. y is the
/// layer's output in float and y_q its output in the quantized model, over the data (Nagel et al., "Data-Free
/// Quantization Through Weight Equalization and Bias Correction", 2019, empirical form). Corrects layers in
/// order of execution, each with the layers before it corrected: one pass in float, and one per layer. Skips
/// and reports layers without a bias, and layers whose weight and input are float.
///
/// `model` must be calibrated. Reported: the mean of (E[y_q - y])^2 over channels. A small rest remains,
/// because biases are rounded to the accumulator's grid. Throws ArgumentError if there is no data or if a
/// quantizer has no range. Throws NumericError for an infinity, and for a NaN with the batch or the layer.
Report correct_bias(Module& model, DataLoader& data, const BiasCorrectionOptions& options = {});

struct AlgorithmEntry;
class AlgorithmOptions;

/// The weight algorithm of a config. Its part before calibration is smoothquant, awq_lite or equalize. Its
/// part after calibration is awq_clip, gptq, adaround or bias_correction. awq_full runs awq_lite before and
/// awq_clip after calibration.
///
/// Options have the names of the struct fields above (`alpha`, `alpha_step`, `lowest`, `step`, `damping`,
/// `act_order`, `iterations`, ..). ModelOpt's names `min_clip_ratio`, `shrink_step` and `perc_damp` also
/// work.
///
///     const ptq::Algorithm algorithm(config);
///     algorithm.before(model, loader);
///     calibrate(model, loader);
///     algorithm.after(model, loader);
class Algorithm {
 public:
  /// Reads the config's weight_algorithm and its options. Without one, `before` and `after` do nothing.
  /// `samples` is the number of images of each pass, 0 for all. Throws ArgumentError for an unknown option or
  /// a wrong type.
  explicit Algorithm(const QuantConfig& config, std::int64_t samples = 0);

  /// Name of the algorithm in the config; empty for none.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Whether `before` changes the model. Statistics collected earlier are then invalid.
  [[nodiscard]] bool precedes_calibration() const noexcept;

  /// Run the part before or after calibration; `ranks` share the work. Both throw the errors of the
  /// functions.
  Report before(Module& model, DataLoader& data, std::shared_ptr<Communicator> ranks = {}) const;
  Report after(Module& model, DataLoader& data, std::shared_ptr<Communicator> ranks = {}) const;

 private:
  std::string name_;
  std::shared_ptr<const AlgorithmEntry> entry_;
  std::shared_ptr<const AlgorithmOptions> options_;
};

}  // namespace fq::ptq
