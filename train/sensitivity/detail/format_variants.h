#pragma once

/// Variants of the layers of a float model in several formats.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/sensitivity/detail/trials.h"

namespace fq::detail {

/// Quantized and calibrated modules by path, for the layers that a format quantizes. They share parameters
/// with the float modules. Modules that read one tensor share its quantizer.
using FormatVariant = std::map<std::string, std::shared_ptr<Module>>;

/// Returns the modules of the model that `config` quantizes. Restores the float modules, also after an
/// exception.
[[nodiscard]] FormatVariant quantized_variant(Module& model, const QuantConfig& config,
                                              const Shape& input_shape);
/// Returns the modules as `quantized_variant` does. Their ranges come from `calibrate` on up to `samples`
/// samples, and from `postprocess_amax`.
[[nodiscard]] FormatVariant format_variant(Module& model, const QuantConfig& config, DataLoader& data,
                                           std::int64_t samples);

/// A layer that some format quantizes.
struct VariableLayer {
  std::string path;
  ModuleSlot slot;  ///< slot of the float module
  /// Module of each format; the float module if the format does not quantize it.
  std::vector<std::shared_ptr<Module>> modules = {};
  std::int64_t weights = 0;  ///< elements of the weight
  int group = 0;             ///< group number from 0, in the order of layers
};

/// Returns the layers in execution order. Layers that share a quantizer in any format
/// form a group: readers of one tensor, and layers whose ranges an engine ties. A group without weights joins
/// the group of the layer before it.
[[nodiscard]] std::vector<VariableLayer> variable_layers(Module& model,
                                                         const std::vector<FormatVariant>& variants,
                                                         const Shape& input_shape);

/// Returns the smallest average number of bits per weight that the formats reach. `floats[f]` is true if
/// format f leaves layers float.
[[nodiscard]] double fewest_bits(const std::vector<VariableLayer>& layers, const std::vector<bool>& floats);

}  // namespace fq::detail
