#pragma once

/// Exports scales of a quantized model for engines: `scales.json` as text and `scales.h5` as arrays. Also
/// counts the values that the ranges clip on real data.
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

/// Values outside the range of a quantizer. clipped / count is the clipped share.
struct ClipCount {
  std::int64_t clipped = 0;  ///< values outside the range: |v| > amax, or v < 0 for an unsigned format
  std::int64_t count = 0;    ///< values quantized
};
/// Counts by quantizer name.
using ClipCounts = std::map<std::string, ClipCount>;

/// Counts clipped values while it is installed (RecordScope) and the model runs in evaluation mode on the
/// same thread. Weights are counted once, independent of the number of batches, and are not counted if stored
/// as codes (layers/quantizer/compress.h). Values that a pending ReLU sets to zero count as within the range.
/// Quantizers with the arithmetic `reference` have no codes and are not counted.
class ClipCounter : public Recorder {
 public:
  /// `model` is the quantized model that will run. The counter finds its weight quantizers.
  explicit ClipCounter(Module& model);

  void record_op(std::string_view op, const std::vector<Variable>& inputs, const Variable& output,
                 Attributes attributes) override;
  /// Returns the counts so far.
  [[nodiscard]] const ClipCounts& counts() const noexcept { return counts_; }

 private:
  std::set<std::string> weights_;
  ClipCounts counts_;
};

/// Grid of a layer's integer sums, and its bias on that grid: a sum A = bias + sum q_x*q_w represents fl(A) *
/// scale. An engine that accumulates in int32 needs exactly these values.
struct LayerSums {
  Tensor scale;  ///< f32, fl(s_x * s_w): rank 0, or [output channels]
  Tensor bias;   ///< i32 [output channels]: `bias_codes`; undefined without a bias
};

/// Returns the sums of a quantized linear or convolution layer that multiplies integer codes: up to 8 bits,
/// one static range of the input, weights per tensor or per output channel. Returns no value for other
/// modules. Throws ArgumentError that names an uncalibrated quantizer. A layer or model on a GPU moves to the
/// host for this time, and its gradients are cleared. The functions below do the same.
[[nodiscard]] std::optional<LayerSums> layer_sums(Module& layer);

/// Returns all scales of a model, as `{"format": "fakequant-scales", "version": 1, "id": .., "quantizers":
/// [..], "layers": [..]}`.
///
/// A quantizer is `{"name", "aliases", "enabled", "format", "granularity", "dynamic", "zero_point", "amax",
/// "scale"}`. `name` is the path of the module and its quantizer. `format` is `{"type": "int", "bits",
/// "unsigned", "narrow_range"}` or `{"type": "float", "exponent", "mantissa"}`. `granularity` is "tensor",
/// `{"axis": n}` or `{"blocks": block_sizes of the descriptor}`. amax and scale are numbers, or row-major
/// lists with one number per channel or block.
///
/// The stored code of a code q is q + zero_point, and its value is (stored code - zero_point) * scale.
/// `dynamic` quantizers have no scale. They have amax only if it is the range of a whole tensor in blocks.
/// Quantizers of weights have the `shape` of the weight. With scales they also have the `block` (elements
/// along each axis that share a scale) and the `scale_shape`. Quantizers in `clips` have `clipped` and
/// `count`.
///
/// A layer is `{"name", "sum_scale", "bias_codes"}`, the result of `layer_sums`. Layers without a bias have
/// no `bias_codes`. `id` is eight hexadecimal digits, the CRC-32C of the other content as compact JSON. Files
/// with the same id belong together.
///
/// Throws ArgumentError that names an enabled but uncalibrated quantizer.
[[nodiscard]] nlohmann::json scales_json(Module& model, const ClipCounts& clips = {});

/// Writes `scales_json` as text to a temporary file, syncs it and renames it. Throws FileError, SystemError,
/// and as `scales_json`.
void save_scales_json(const std::string& path, Module& model, const ClipCounts& clips = {});
/// Writes an HDF5 file with the datasets `<quantizer>/amax`, `<quantizer>/scale` (f32) and
/// `<quantizer>/zero_point` (i32) for each enabled quantizer with amax, and `<layer>/sum_scale` (f32) and
/// `<layer>/bias_codes` (i32). The attribute "scales" holds the JSON text.
void save_scales_h5(const std::string& path, Module& model, const ClipCounts& clips = {});
/// Writes both `prefix` + ".json" and `prefix` + ".h5" with the same `id`, and then renames them together.
void save_scales(const std::string& prefix, Module& model, const ClipCounts& clips = {});

}  // namespace fq
