#pragma once

/// What ModelOpt calls a quantized layer.

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
  std::int64_t group = 0;  ///< elements of a block; 0 for none

  [[nodiscard]] TensorQuantizer& input() const { return *quant->input_quantizers()[0]; }
};

/// All of a model, in the order of the tree. Throws ArgumentError for a layer that has no name there.
[[nodiscard]] std::vector<ModeloptLayer> modelopt_layers(Module& model);
/// What a path, of a module or a parameter, is in the file: in networks of Llama's names
/// (import_transformers) `model.layers.0.self_attn.out_proj` is `.o_proj`; any other is itself.
[[nodiscard]] std::string name_in_file(const std::string& path);
/// Whether it has one range beforehand and signed codes of 8 bits: what `input_scale` can say.
[[nodiscard]] bool has_input_scale(const TensorQuantizer& q);
/// Of a layer that no name of ModelOpt fits: its path, and what it is or has.
struct NoModeloptName : public ArgumentError {
  NoModeloptName(std::string layer, std::string why, const std::string& message)
      : ArgumentError(message), path(std::move(layer)), what_it_is(std::move(why)) {}
  std::string path, what_it_is;
};
/// Throws it: "takes .." is what there are names for.
[[noreturn]] void no_modelopt_name(const std::string& path, const std::string& what);

}  // namespace fq::detail
