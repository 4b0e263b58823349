#pragma once

/// Sizes of the products of linear and convolution layers.

#include <optional>

#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// y[c] = bias[c] + a sum of `terms` products of inputs and weights.
struct LayerProduct {
  std::int64_t channels;  ///< of the output
  std::int64_t terms;     ///< products in one output
  Variable bias;          ///< f32 [channels]; undefined for none
};

/// Returns the product of a Linear or Conv layer, and nothing for every other module.
[[nodiscard]] std::optional<LayerProduct> layer_product(const Module& layer);

}  // namespace fq::detail
