#pragma once

/// Finds the tensors that need quantizers in the graph of operators.

#include <functional>
#include <string>
#include <vector>

#include "fakequant/layers/config/quant_config.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/modules/module.h"

namespace fq::detail {

/// A tensor as one reader sees it. Tensors of one group must have one scale.
struct UsedTensor {
  int group;
  bool non_negative;  ///< output of a ReLU, a sigmoid or the like, also after layers that keep the sign
};

/// A module that can be quantized, and the tensors it reads. The list is empty for three kinds of modules:
/// recurrent layers, whose input has its own range, embeddings, and attention, which quantizes its own
/// intermediate results.
struct QuantizableUse {
  std::string path;
  bool has_weight;
  std::vector<UsedTensor> tensors;
};

/// Whether the module is an attention layer, whose counterpart is a QuantAttention or the like.
[[nodiscard]] bool is_attention(const Module& module);

/// Returns the modules in the order of execution, each once. A module that runs several times puts the
/// tensors of all calls into one group. Without `quantizes_sums`, additions, concatenations and averages are
/// excluded.
[[nodiscard]] std::vector<QuantizableUse> quantizable_uses(
    Module& model, const TraceGraph& graph, bool quantizes_sums,
    const std::function<bool(const Module&)>& quantizable);

}  // namespace fq::detail
