#pragma once

/// Compression: weights kept as packed codes, in memory and in checkpoints.
///
///     for (const CompressedWeight& weight : compress(model))
///       std::cout << weight.name << ' ' << 4 * weight.elements << " -> " << weight.code_bytes << " bytes\n";
///     save_checkpoint("small.h5", model_state(model));
///
/// The parameter keeps its name and shape. Its type becomes the `packed_dtype` of the weight quantizer's
/// format: i8, i4, i2, f8_e4m3, f4_e2m1, .. Scales follow from the quantizer's amax. Do not change this amax,
/// because the codes are multiples of the scales. If ranges come from each input (dynamic blocks: NVFP4, MX),
/// the quantizer stores the scales with the codes in their own type, e4m3 or e8m0.
///
/// Forward multiplies the same codes as before, so evaluation gives the same bits. Each call unpacks codes of
/// fewer than 8 bits. The parameter has no gradient: your own training loop trains only the parameters that
/// are still floats.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/layers/modules/quant_modules.h"

namespace fq {

/// Sizes of a compressed weight in bytes. As f32 it had 4 * elements bytes.
struct CompressedWeight {
  std::string name;  ///< name of the parameter: "conv1.weight"
  Format format;
  std::int64_t elements = 0;
  std::int64_t code_bytes = 0;
  std::int64_t scale_bytes = 0;  ///< in their stored type; f32 if scales follow from amax
};

/// Compresses the weights of all layers whose weight quantizer is enabled. Returns the compressed weights in
/// the order of the modules, including weights that were compressed before.
///
/// Throws ArgumentError, and then nothing changes, in these cases: there is no such weight; a quantizer is
/// not calibrated, or has a pre_quant_scale, ggml's blocks or floats (arithmetic reference); another module
/// reads the weight as floats or on another grid. Throws NumericError for a weight with a NaN.
std::vector<CompressedWeight> compress(Module& model);
/// Replaces codes by float parameters with the same values, which can be trained again. Quantizers with
/// static ranges then give the same codes. If ranges come from each input, they are recomputed from the new
/// floats.
void decompress(Module& model);

/// Whether a parameter holds codes.
[[nodiscard]] bool holds_codes(const Variable& parameter);
/// Whether any parameter of the model holds codes.
[[nodiscard]] bool is_compressed(const Module& model);
/// Throws ArgumentError naming a weight that holds codes, for a `function` that needs floats.
void check_not_compressed(const Module& model, std::string_view function);

/// Returns the codes of a layer's weight that forward multiplies, for float and for compressed weights. They
/// have no mask, and are on `meta` while the weight is there. Throws ArgumentError if the layer has no
/// weight, or if its quantizer is disabled, not calibrated, or of arithmetic reference.
[[nodiscard]] QuantizedTensor weight_codes(const QuantModule& layer);

/// Throws ArgumentError unless `value` can be the layer's weight. It is for readers of files. Codes must have
/// the type of their format and be in its range, and each block must have its scale.
void check_weight(const QuantModule& layer, const Tensor& value);
/// Replaces the layer's weight by a copy of `value`, floats or codes. Throws as `check_weight`.
void set_weight(const QuantModule& layer, const Tensor& value);

class Module;

/// Quantizes the weights whose codes are not cached, as the quantized layers would in their next call. On a
/// GPU this is one launch, so the Trainer calls it before the forward pass. The codes stay cached until the
/// weight or its grid changes.
void quantize_weights(Module& model);
/// Quantizes the weights of these layers in the same way.
void quantize_weights(std::span<const QuantModule* const> layers);

}  // namespace fq
