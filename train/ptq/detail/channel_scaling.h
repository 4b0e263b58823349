#pragma once

/// Which channels may be divided where they are made and multiplied where they are read.

#include <memory>
#include <string>
#include <vector>

#include "fakequant/train/ptq/detail/weighted_layers.h"

namespace fq::ptq {

/// What makes channels: output channels of a layer or channels of a norm, axis 0 of weight and bias.
struct Producer {
  std::string path;
  Variable weight = {}, bias = {};  ///< bias may be undefined
  bool norm = false;
};

/// Layers that read the same channels. The network computes the same, up to rounding, when channel c is
/// divided by f[c] on its way in and the weights that read it are multiplied by f[c].
struct ScaleGroup {
  Producer producer;                   ///< path empty: the input quantizers' pre_quant_scale divides
  std::vector<WeightedLayer> readers;  ///< at least one
  std::int64_t channels = 0;           ///< a reader may see each of them as several: flattened images

  [[nodiscard]] bool folds() const noexcept { return !producer.path.empty(); }
};

struct ScaleGroups {
  std::vector<ScaleGroup> groups;  ///< in the order of execution
  std::vector<SkippedLayer> skipped;
};

/// Layers and norms whose output reaches weighted layers and nothing else, through operators only with
/// f(a x) = a f(x) for a > 0: ReLU, leaky ReLU, pooling, flattening.
[[nodiscard]] ScaleGroups folding_groups(Module& model, const TraceGraph& graph);
/// The same, and a group for each input quantizer of what is left whose readers are all weighted layers of
/// one shape of input.
[[nodiscard]] ScaleGroups scale_groups(Module& model, const TraceGraph& graph);

/// For each channel of the group the largest of `values`, a list of input channels for each reader.
[[nodiscard]] std::vector<float> largest_of_readers(const ScaleGroup& group,
                                                    const std::vector<std::vector<float>>& values);
/// Divides where the channels are made, multiplies where they are read. Factors are positive.
void scale_channels(const ScaleGroup& group, const std::vector<float>& factors);
/// One factor for each input channel of that reader.
[[nodiscard]] std::vector<float> factors_of(const ScaleGroup& group, const WeightedLayer& reader,
                                            const std::vector<float>& factors);

}  // namespace fq::ptq
