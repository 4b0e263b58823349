#pragma once

/// Sizes of the products of linear and convolution layers.

#include <optional>

#include "fakequant/layers/modules/conv.h"
#include "fakequant/layers/modules/linear.h"

namespace fq::detail {

/// y[c] = bias[c] + a sum of `terms` products of inputs and weights.
struct LayerProduct {
  std::int64_t channels;  ///< of the output
  std::int64_t terms;     ///< products in one output
  Variable bias;          ///< f32 [channels]; undefined for none
};

/// Returns the product of a Linear or Conv layer, and nothing for every other module.
[[nodiscard]] inline std::optional<LayerProduct> layer_product(const Module& layer) {
  if (const auto* linear = dynamic_cast<const Linear*>(&layer))
    return LayerProduct{linear->weight().dim(0), linear->weight().dim(1), linear->bias()};
  const auto* conv = dynamic_cast<const Conv*>(&layer);
  if (conv == nullptr) return {};
  const bool transposed = conv->channel_axis() == 1;
  const std::int64_t groups = transposed ? conv->options().groups : 1;
  const std::int64_t rows = conv->weight().dim(conv->channel_axis()) * groups;
  return LayerProduct{conv->out_channels(), conv->weight().numel() / rows, conv->bias()};
}

}  // namespace fq::detail
