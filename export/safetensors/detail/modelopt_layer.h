#pragma once

/// ModelOpt's names of quantized layers.

#include <string>
#include <string_view>
#include <vector>

#include "fakequant/core/error.h"
#include "fakequant/layers/modules/quant_modules.h"

namespace fq::detail {

enum class ModeloptAlgorithm : unsigned char {
  none,  ///< the weight stays float
  w8a8_sq_per_channel,
  w8a16,
  fp8,
  fp8_per_channel_per_token,
  nvfp4,
  w4a16_awq,
  mxfp8,
};
[[nodiscard]] std::string_view name(ModeloptAlgorithm algorithm) noexcept;

/// A linear or convolution layer.
struct ModeloptLayer {
  std::string path;
  QuantModule* quant = nullptr;  ///< null for a float layer
  ModeloptAlgorithm algorithm = ModeloptAlgorithm::none;
  std::int64_t group = 0;  ///< elements of a block; 0: no blocks

  [[nodiscard]] TensorQuantizer& input() const { return *quant->input_quantizers()[0]; }
};

/// Returns all layers of a model, in the order of the tree. Throws ArgumentError for a layer without a name
/// in ModelOpt.
[[nodiscard]] std::vector<ModeloptLayer> modelopt_layers(Module& model);
/// Returns the name of a module or parameter in the file. Networks with Llama's names (import_transformers)
/// use `.o_proj` for `model.layers.0.self_attn.out_proj`. Other paths are unchanged.
[[nodiscard]] std::string name_in_file(const std::string& path);
/// Whether the quantizer has one static range and signed 8-bit codes, as `input_scale` requires.
[[nodiscard]] bool has_input_scale(const TensorQuantizer& q);
/// Error for a layer without a name in ModelOpt: its path and its property.
struct NoModeloptName : public ArgumentError {
  NoModeloptName(std::string layer, std::string why, const std::string& message)
      : ArgumentError(message), path(std::move(layer)), reason(std::move(why)) {}
  std::string path, reason;
};
/// Throws NoModeloptName. The message lists the supported presets.
[[noreturn]] void no_modelopt_name(const std::string& path, const std::string& what);

}  // namespace fq::detail
