#pragma once

/// The products of linear and convolution layers, whatever their rank.

#include <optional>

#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// y[c] = bias[c] + a sum of `terms` products of inputs and weights.
struct LayerProduct {
  std::int64_t channels;  ///< of the output
  std::int64_t terms;     ///< products in one output
  Variable bias;          ///< f32 [channels]; undefined for none
};

/// Of a Linear or Conv layer; nothing for every other module.
[[nodiscard]] std::optional<LayerProduct> layer_product(const Module& layer);

}  // namespace fq::detail
