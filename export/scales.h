#pragma once

/// Scales of a quantized model as files for engines: `scales.json` to read, `scales.h5` to compute with; and
/// how much of real data the ranges behind them clip.
///
///     ClipCounter clips(model);
///     {
///       const RecordScope scope(clips);
///       (void)evaluate(model, loader);
///     }
///     save_scales("scales", model, clips.counts());  // scales.json and scales.h5

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>

#include "fakequant/core/trace.h"
#include "fakequant/layers/modules/module.h"

namespace fq {

/// How much of real data lies outside of the range of a quantizer: clipped / count is the share.
struct ClipCount {
  std::int64_t clipped = 0;  ///< values outside of the range: |v| > amax, or v < 0 of an unsigned format
  std::int64_t count = 0;    ///< values quantized
};
/// By the name of the quantizer.
using ClipCounts = std::map<std::string, ClipCount>;

/// Counts while it is installed (RecordScope) and the model runs in evaluation mode on the same thread.
/// Weights are counted once, however many batches there are, and not where they are kept as codes
/// (layers/quantizer/compress.h); values that a pending ReLU sets to zero lie in the range. Quantizers of
/// arithmetic `reference` give no codes and are not counted.
class ClipCounter : public Recorder {
 public:
  /// `model` is the one that will run, quantized already; it tells which quantizers are of weights.
  explicit ClipCounter(Module& model);

  void on_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
             Attributes attributes) override;
  /// What was counted so far, by the names of quantizers.
  [[nodiscard]] const ClipCounts& counts() const noexcept { return counts_; }

 private:
  std::set<std::string> weights_;
  ClipCounts counts_;
};

/// The grid of a layer's integer sums, and its bias on it: a sum A = bias + sum q_x*q_w stands for fl(A) *
/// scale. An engine that adds in int32 needs just these.
struct LayerSums {
  Tensor scale;  ///< f32, fl(s_x * s_w): rank 0, or [output channels]
  Tensor bias;   ///< i32 [output channels]: `bias_codes`; undefined for a layer without a bias
};

/// The sums of a quantized linear or convolution layer that multiplies integer codes: up to 8 bits, one known
/// range of the input, weights per tensor or per output channel. There is nothing for every other module.
/// Throws ArgumentError naming a quantizer that was not calibrated. A layer or model on a GPU is on the host
/// meanwhile, and its gradients are forgotten; so below.
[[nodiscard]] std::optional<LayerSums> layer_sums(Module& layer);

/// All scales of a model, as `{"format": "fakequant-scales", "version": 1, "id": .., "quantizers": [..],
/// "layers": [..]}`.
///
/// A quantizer is `{"name", "aliases", "enabled", "format", "granularity", "dynamic", "zero_point", "amax",
/// "scale"}`. `name` is the path of the module and its quantizer; `format` is `{"type": "int", "bits",
/// "unsigned", "narrow_range"}` or `{"type": "float", "exponent", "mantissa"}`; `granularity` is "tensor",
/// `{"axis": n}` or `{"blocks": block_sizes of the descriptor}`; amax and scale are numbers, or lists of one
/// number a channel or block, row-major. A value q stands for (stored code - zero_point) * scale, where the
/// stored code is q + zero_point. `dynamic` quantizers have no scale, and amax only where it is the range of
/// a whole tensor in blocks. Those of weights have the `shape` of the weight, and where they have scales the
/// `block` (elements along each axis that share one) and the `scale_shape` in which scales lie. Those in
/// `clips` have `clipped` and `count`.
///
/// A layer is `{"name", "sum_scale", "bias_codes"}`: `layer_sums`, of those that have them; `bias_codes` only
/// of those with a bias. `id` is eight hexadecimal digits, the CRC-32C of all else as compact JSON: files of
/// one id belong together.
///
/// Throws ArgumentError naming an enabled quantizer that was not calibrated.
[[nodiscard]] nlohmann::json scales_json(Module& model, const ClipCounts& clips = {});

/// Writes `scales_json` as text. The file is written beside, synced and renamed. Throws FileError,
/// SystemError, and as `scales_json`.
void save_scales_json(const std::string& path, Module& model, const ClipCounts& clips = {});
/// Writes datasets `<quantizer>/amax`, `<quantizer>/scale` (f32) and `<quantizer>/zero_point` (i32) for each
/// enabled quantizer with amax, `<layer>/sum_scale` (f32) and `<layer>/bias_codes` (i32), and the JSON above
/// as the attribute "scales", as one of our HDF5 files.
void save_scales_h5(const std::string& path, Module& model, const ClipCounts& clips = {});
/// Both, `prefix` + ".json" and `prefix` + ".h5", of one `id`: written first, then put in place back to back.
void save_scales(const std::string& prefix, Module& model, const ClipCounts& clips = {});

}  // namespace fq
