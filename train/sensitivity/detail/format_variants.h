#pragma once

/// A float model's layers as each of several formats would have them.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/sensitivity/detail/trials.h"

namespace fq::detail {

/// Quantized and calibrated modules by path, of those layers that the format quantizes. They share their
/// parameters with the float modules, and quantizers with each other where readers of one tensor do.
using FormatVariant = std::map<std::string, std::shared_ptr<Module>>;

/// Quantizes the model by `config`; then the float modules are back, also after an exception.
[[nodiscard]] FormatVariant quantized_variant(Module& model, const QuantConfig& config,
                                              const Shape& input_shape);
/// Quantizes the model by `config` and calibrates it, on up to `samples` samples, as `calibrate` and
/// `postprocess_amax` do; then the float modules are back, also after an exception.
[[nodiscard]] FormatVariant format_variant(Module& model, const QuantConfig& config, DataLoader& data,
                                           std::int64_t samples);

/// A layer that some format quantizes.
struct VariableLayer {
  std::string path;
  ModuleSlot slot;                                    ///< holds the float module
  std::vector<std::shared_ptr<Module>> modules = {};  ///< one a format; the float one where it leaves it so
  std::int64_t weights = 0;                           ///< elements of its weight
  int group = 0;                                      ///< from 0, in order
};

/// In the order in which the model runs them. Layers that share a quantizer in any format are one group:
/// readers of one tensor, and those whose ranges an engine ties. A layer without a weight whose group has
/// none goes with the layer before it.
[[nodiscard]] std::vector<VariableLayer> variable_layers(Module& model,
                                                         const std::vector<FormatVariant>& variants,
                                                         const Shape& input_shape);

/// The fewest bits a weight that formats of these layers reach on average; `floats[f]`: whether format f
/// leaves layers float.
[[nodiscard]] double fewest_bits(const std::vector<VariableLayer>& layers, const std::vector<bool>& floats);

}  // namespace fq::detail
