#pragma once

/// Compression: weights kept as packed codes, in memory and in checkpoints.
///
///     for (const CompressedWeight& weight : compress(model))
///       std::cout << weight.name << ' ' << 4 * weight.elements << " -> " << weight.code_bytes << " bytes\n";
///     save_checkpoint("small.h5", model_state(model));
///
/// The parameter keeps its name and shape; its type becomes `packed_dtype` of the weight quantizer's format:
/// i8, i4, i2, f8_e4m3, f4_e2m1, .. The scales are those of the quantizer's amax, which stays where it is and
/// must not be changed: the codes are multiples of it. Where ranges come from each input (dynamic blocks:
/// NVFP4, MX) the quantizer keeps the scales beside the codes in their own type, e4m3 or e8m0.
///
/// Forward multiplies the codes that it multiplied before, so that evaluation gives the same bits; codes of
/// fewer than 8 bits are unpacked for each call. The parameter takes no gradient: loops of one's own train
/// what is still float.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/layers/modules/quant_modules.h"

namespace fq {

/// What became of a weight, in bytes; as f32 it took 4 * elements.
struct CompressedWeight {
  std::string name;  ///< of the parameter: "conv1.weight"
  Format format;
  std::int64_t elements = 0;
  std::int64_t code_bytes = 0;
  std::int64_t scale_bytes = 0;  ///< in the type that they are kept in; f32 where they come from amax
};

/// Compresses the weights of all layers whose weight quantizer is enabled. Returns them, those that were
/// compressed before too, in the order of the modules.
///
/// Throws ArgumentError, and then nothing was changed: there is no such weight; a quantizer was not
/// calibrated, has a pre_quant_scale, ggml's blocks or floats (arithmetic reference); somebody else reads the
/// weight as floats, or on another grid. Throws NumericError for a weight with a NaN.
std::vector<CompressedWeight> compress(Module& model);
/// Makes float parameters of the codes' values, to be trained again. Grids of static quantizers give the same
/// codes again; where ranges come from each input, they are those of the new floats.
void decompress(Module& model);

/// Whether a parameter holds codes.
[[nodiscard]] bool holds_codes(const Variable& parameter);
/// Whether any parameter of the model does.
[[nodiscard]] bool is_compressed(const Module& model);
/// Throws ArgumentError naming a weight that holds codes: `function` needs floats.
void check_not_compressed(const Module& model, std::string_view function);

/// The codes of a layer's weight that forward multiplies, whichever way it is kept; on `meta` while the
/// weight is there. They have no mask. Throws ArgumentError where there are none: there is no weight, or its
/// quantizer is off, not calibrated, or of arithmetic reference.
[[nodiscard]] QuantizedTensor weight_codes(const QuantModule& layer);

/// For readers of files: throws ArgumentError unless `value` can be the layer's weight. Codes must be in the
/// type of its format and be numbers of it, and each block must have its scale.
void check_weight(const QuantModule& layer, const Tensor& value);
/// Replaces the layer's weight by a copy of those floats or codes. Throws as `check_weight`.
void set_weight(const QuantModule& layer, const Tensor& value);

class Module;

/// Quantizes the weights whose codes are not kept yet, as the quantized layers would in their next call; on a
/// GPU in one launch, for which the Trainer calls it before the forward pass. They keep the codes until the
/// weight or its grid changes.
void quantize_weights(Module& model);

}  // namespace fq
