#pragma once

/// Algorithms that change weights, biases and ranges so that a network loses less by quantization, without
/// training.
///
/// Each takes a quantized model and says what it did, layer by layer. `equalize`, `smooth_quant` and
/// `awq_lite` come before calibration, since they change what is calibrated; `awq_clip`, `gptq`, `ada_round`
/// and `correct_bias` after it. The model must lie on the CPU. ptq::Algorithm, below, runs one by the name
/// that a QuantConfig has, and moves the model there for as long.
///
///     quantize(model, QuantConfig::preset("w4a8"), {1, 3, 32, 32});
///     ptq::smooth_quant(model, loader);
///     calibrate(model, loader);
///     for (const auto& layer : ptq::gptq(model, loader).layers)
///       std::cout << layer.path << ": " << layer.before << " -> " << layer.after << '\n';
///
/// With `ranks` each process is given a loader of its batches (share_of_rank), and all get what one process
/// would: sums over data are binned (train/ranks/detail/binned_sum.h).

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::ptq {

/// One layer that was changed. `before` and `after` are what the algorithm makes smaller, which its comment
/// calls "Reported"; NaN where it measures nothing.
struct LayerReport {
  /// The layer, and what is reported of it.
  std::string path;
  double before = 0, after = 0;
};

/// One layer that was left as it was.
struct SkippedLayer {
  std::string path;
  std::string reason;  ///< "has no bias"
};

/// What an algorithm did.
struct Report {
  std::vector<LayerReport> layers;    ///< changed, in the order of execution
  std::vector<SkippedLayer> skipped;  ///< left as they were
};

/// How long `equalize` goes on.
struct EqualizeOptions {
  int iterations = 20;      ///< at most
  double tolerance = 1e-3;  ///< ends when no factor is further from 1
};

/// Cross-layer equalisation: ranges of weights evened out between layers, without data.
///
/// Divides output channel c of a layer, with its bias, by s_c = sqrt(r1_c / r2_c) and multiplies the weights
/// that read it by s_c: both then have the range sqrt(r1_c * r2_c) (Nagel et al., "Data-Free Quantization
/// Through Weight Equalization and Bias Correction", 2019). r1_c is the largest magnitude of the weights that
/// make the channel, r2_c of those that read it. Pairs are linear layers and convolutions, grouped ones too,
/// with only ReLU, leaky ReLU, pooling or flattening between them, as the graph shows; repeated until nothing
/// moves. Fold batch norm first. Channels that are 0 on either side stay.
///
/// `model` may be quantized, but not yet calibrated. In float it computes the same up to rounding. Reported:
/// the largest weight that makes what the layer reads times the largest that reads it, which bounds the
/// product of their steps, before and after. Throws ArgumentError for options out of range and for a
/// calibrated model.
Report equalize(Module& model, const Shape& input_shape, const EqualizeOptions& options = {});

/// How far `smooth_quant` goes, and by which data.
struct SmoothQuantOptions {
  double alpha = 0.5;                        ///< 0 .. 1: how much of the range of activations moves
  std::int64_t samples = 0;                  ///< images to look at; 0 is all of one epoch
  std::shared_ptr<Communicator> ranks = {};  ///< that share them out
};

/// SmoothQuant: outliers of activations moved into weights.
///
/// Divides input channel j of each linear layer and convolution by s_j = max|x_j|^alpha / max|w_j|^(1-alpha)
/// and multiplies the weights that read it by s_j (Xiao et al., arXiv:2211.10438). The division goes into the
/// layer or norm that makes the channels where the graph leads from it to such layers only, through ReLU,
/// pooling and flattening; otherwise it is the pre_quant_scale of the input quantizer. Layers that share
/// their input have one s, the largest of each channel counting. Channels that are always 0, or are read by
/// zeros, stay.
///
/// `model` may be quantized, but not yet calibrated: ranges are chosen after this. In float it computes the
/// same up to rounding. It takes one pass over the data. Reported: the largest |x| of the input, by ratio to
/// the mean of its channels' largest, before and after. Throws ArgumentError for alpha out of range, when
/// there is no data, and for a calibrated model; NumericError naming the layer for a NaN.
Report smooth_quant(Module& model, DataLoader& data, const SmoothQuantOptions& options = {});

/// Which scales `awq_lite` tries, and on which data.
struct AwqLiteOptions {
  double alpha_step = 0.1;                   ///< of the search, 0.001 to 1
  std::int64_t samples = 0;                  ///< images to look at; 0 is all of one epoch
  std::shared_ptr<Communicator> ranks = {};  ///< that share them out
};

/// AWQ, scales: channels that activations make important get finer weights.
///
/// Multiplies the weights that read input channel j by s_j = (mean|x_j|)^alpha, divided by the square root of
/// the largest times the smallest s, and divides the channel by it; alpha, of 0, step, .. 1, is the one whose
/// quantized weights give the least squared error of the layer's output, inputs in float (Lin et al.,
/// arXiv:2306.00978; alpha = 0 changes nothing, so that no layer becomes worse on the data). Where the
/// division goes, what is left alone and when: as `smooth_quant`. Layers that share their input share alpha.
///
/// Weights are quantized as their descriptors say, with ranges by their calib_method. It takes one pass over
/// the data. Reported: the mean squared error of an output, before and after. Throws as `smooth_quant`.
Report awq_lite(Module& model, DataLoader& data, const AwqLiteOptions& options = {});

/// Which ranges `awq_clip` tries, and on which data.
struct AwqClipOptions {
  double lowest = 0.5;                       ///< share of a range that must stay, above 0 and at most 1
  double step = 0.05;                        ///< of the search, 0.001 or more
  std::int64_t samples = 0;                  ///< images to look at; 0 is all of one epoch
  std::shared_ptr<Communicator> ranks = {};  ///< that share them out
};

/// AWQ, clipping: ranges of weights lowered where that makes the output better.
///
/// Multiplies each range of a weight (of a tensor, a channel or a block) by the share 1, 1 - step, .. lowest
/// whose codes give the least squared error of what this range's weights add to the output, inputs in float
/// (Lin et al., arXiv:2306.00978). Weights stay as they are.
///
/// `model` must be calibrated; it takes one pass over the data. Reported: the mean squared error of an
/// output. Layers whose weights are not integers in fixed ranges are left alone and reported. Throws as
/// `gptq`.
Report awq_clip(Module& model, DataLoader& data, const AwqClipOptions& options = {});

/// How `gptq` rounds, and by which data.
struct GptqOptions {
  double damping = 0.01;     ///< share of the mean of H's diagonal that is added to it; positive
  bool act_order = false;    ///< columns by falling diagonal of H, else as they lie
  std::int64_t samples = 0;  ///< images to look at; 0 is all of one epoch
  std::shared_ptr<Communicator> ranks = {};  ///< that share them out, and the layers
};

/// GPTQ: weights rounded one column after another, each error made good by the columns that follow.
///
/// Chooses the codes of linear layers and convolutions by second-order information (Frantar et al.,
/// arXiv:2210.17323): H = 2 X X^T of the layer's inputs in float, damped, a group of a grouped convolution
/// each its own; column i takes its nearest code, and its error over U_ii times row i of U leaves the columns
/// after it, inverse(H) = U^T U, in f64. Codes are integers or floats; ranges stay as calibrated, per tensor,
/// channel or block of weights, in any order of columns. Of blocks that take their ranges from the weights
/// (MX, NVFP4) they are those of the weights as they were; the largest weight of an NVFP4 block keeps its
/// code, by which the block would find its scale again.
///
/// The weights become code * scale, which quantizing by the layer's quantizer gives back: training, export
/// and evaluation go on as ever. Layers are measured against the float weights and inputs, one pass
/// over the data for all; a row (output channel) that would be no nearer to them than the nearest codes keeps
/// those. In large images 64 positions each are looked at. Reported: the mean squared error of an output.
/// Layers whose weights take ranges of another kind anew each time, learn them or have several quantizers are
/// left alone and reported.
///
/// Throws ArgumentError for options out of range, no data, and a model that is not calibrated; NumericError
/// naming the layer for a NaN.
Report gptq(Module& model, DataLoader& data, const GptqOptions& options = {});

/// How `ada_round` learns, and from which data.
struct AdaRoundOptions {
  /// Steps of Adam for each layer.
  int iterations = 300;
  double learning_rate = 0.02;  ///< of Adam
  double regularization = 0.5;  ///< weight of the term that drives h to 0 or 1, beside an error of 1 a weight
  double warmup = 0.2;          ///< share of the iterations without that term
  double beta_start = 20, beta_end = 2;      ///< its exponent, annealed linearly
  std::int64_t samples = 0;                  ///< images to look at; 0 is all of one epoch
  std::shared_ptr<Communicator> ranks = {};  ///< that share them out, and the layers
};

/// AdaRound: for each weight, up or down is learned.
///
/// Learns whether each weight is rounded down or up (Nagel et al., arXiv:2004.10568): codes floor(w / scale)
/// + h(V), h the sigmoid stretched to [-0.1, 1.1] and cut to [0, 1], V by Adam so that the squared error of
/// the layer's output, relative to that of the nearest codes, is least, plus sum of 1 - |2h - 1|^beta; beta
/// falls so that h ends at 0 or 1. The error over all of the data at once comes from E[x x^T] of the layer's
/// inputs in float: one pass over it, whatever the iterations. Beyond the paper, single weights are then
/// rounded the other way as long as that lowers the error.
///
/// What becomes of weights and ranges, what is reported and thrown: as `gptq`. Layers whose weights are not
/// integers in fixed ranges are left alone and reported.
Report ada_round(Module& model, DataLoader& data, const AdaRoundOptions& options = {});

/// On which data `correct_bias` measures.
struct BiasCorrectionOptions {
  std::int64_t samples = 0;                  ///< images to look at; 0 is all of one epoch
  std::shared_ptr<Communicator> ranks = {};  ///< that share them out
};

/// Bias correction: what quantization shifts on average, taken out of the bias.
///
/// Subtracts E[y_q - y] of each output channel from the bias of linear layers and convolutions, y being the
/// layer's output in float and y_q in the quantized model, over the data (Nagel et al., "Data-Free
/// Quantization Through Weight Equalization and Bias Correction", 2019, empirical form). It goes layer after
/// layer, each behind corrected ones: one pass in float, and one for each layer. Layers without a bias are
/// left alone and reported, as those whose weight and input are float.
///
/// `model` must be calibrated. Reported: the mean of (E[y_q - y])^2 over channels, before and after; biases
/// are rounded to the accumulator's grid, so something small stays. Throws ArgumentError when there is no
/// data and for a quantizer without a range; NumericError for a NaN, naming the batch or the layer, and for
/// an infinity.
Report correct_bias(Module& model, DataLoader& data, const BiasCorrectionOptions& options = {});

struct AlgorithmEntry;
class AlgorithmOptions;

/// One that a config names, around calibration. `before` it come smoothquant, awq_lite and equalize, `after`
/// it awq_clip, gptq, adaround and bias_correction; awq_full is awq_lite before and awq_clip after.
///
/// Options have their names in the structs above (`alpha`, `alpha_step`, `lowest`, `step`, `damping`,
/// `act_order`, `iterations`, ..); ModelOpt's names `min_clip_ratio`, `shrink_step` and `perc_damp` are taken
/// too.
///
///     const ptq::Algorithm algorithm(config);
///     algorithm.before(model, loader);
///     calibrate(model, loader);
///     algorithm.after(model, loader);
class Algorithm {
 public:
  /// The config's weight_algorithm with its options; none does nothing. `samples` are those of each pass, 0
  /// for all. Throws ArgumentError naming an option that it does not have, or one of another type.
  explicit Algorithm(const QuantConfig& config, std::int64_t samples = 0);

  /// The name as in the config; empty for none.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Whether `before` changes the model: what was collected with it as it is no longer counts.
  [[nodiscard]] bool runs_before() const noexcept;

  /// Runs what belongs there, shared out by `ranks` if there are; both throw what the functions above throw.
  Report before(Module& model, DataLoader& data, std::shared_ptr<Communicator> ranks = {}) const;
  Report after(Module& model, DataLoader& data, std::shared_ptr<Communicator> ranks = {}) const;

 private:
  std::string name_;
  std::shared_ptr<const AlgorithmEntry> entry_;
  std::shared_ptr<const AlgorithmOptions> options_;
};

}  // namespace fq::ptq
