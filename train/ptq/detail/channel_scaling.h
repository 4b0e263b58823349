#pragma once

/// Groups of layers whose common input channels can be rescaled without changing the network.

#include <string>
#include <vector>

#include "fakequant/train/ptq/detail/weighted_layers.h"

namespace fq::ptq {

/// A layer or norm that makes channels. The channels are axis 0 of its weight and bias.
struct Producer {
  std::string path;
  Variable weight = {}, bias = {};  ///< bias may be undefined
  bool norm = false;
};

/// Layers that read the same channels. Dividing channel c by f[c] at its producer and multiplying the weights
/// that read the channel by f[c] does not change the network's output, except for rounding.
struct ScaleGroup {
  Producer producer;                   ///< empty path: the input quantizers divide (pre_quant_scale)
  std::vector<WeightedLayer> readers;  ///< at least one
  std::int64_t channels = 0;           ///< a reader of flattened images has several inputs per channel

  [[nodiscard]] bool folds() const noexcept { return !producer.path.empty(); }
};

struct ScaleGroups {
  std::vector<ScaleGroup> groups;  ///< in the order of execution
  std::vector<SkippedLayer> skipped;
};

/// Returns the groups of layers and norms whose output is read by weighted layers only. Operators in between
/// must satisfy f(a x) = a f(x) for a > 0: ReLU, leaky ReLU, pooling, flattening.
[[nodiscard]] ScaleGroups folding_groups(Module& model, const TraceGraph& graph);
/// Returns the groups of `folding_groups`, and one group per remaining input quantizer whose readers are all
/// weighted layers with the same input shape.
[[nodiscard]] ScaleGroups scale_groups(Module& model, const TraceGraph& graph);

/// Returns the largest of `values` for each channel of the group. `values` has one list of channels per
/// reader.
[[nodiscard]] std::vector<float> largest_of_readers(const ScaleGroup& group,
                                                    const std::vector<std::vector<float>>& values);
/// Divides the channels by `factors` at the producer and multiplies the readers' weights. Factors are
/// positive.
void scale_channels(const ScaleGroup& group, const std::vector<float>& factors);
/// Returns one factor for each input channel of `reader`.
[[nodiscard]] std::vector<float> reader_factors(const ScaleGroup& group, const WeightedLayer& reader,
                                                const std::vector<float>& factors);

}  // namespace fq::ptq
