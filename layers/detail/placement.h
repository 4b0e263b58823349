#pragma once

/// Where quantizers go, read from the graph of operators.

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
  bool non_negative;  ///< the output of a ReLU, a sigmoid or the like, also behind layers that keep the sign
};

/// A module that can be quantized, with the tensors it reads; of a recurrent layer none, whose input has a
/// range of its own, and of an embedding none; of attention none, which quantizes what it makes.
struct QuantizableUse {
  std::string path;
  bool has_weight;
  std::vector<UsedTensor> tensors;
};

/// Whether it makes scores of queries and keys, and has the quantizers of QuantAttention.
[[nodiscard]] bool is_attention(const Module& module);

/// Returns the modules in the order of execution, each once. A module that runs several times ties the
/// tensors it reads. Without `quantizes_sums`, additions, concatenations and averages are left out.
[[nodiscard]] std::vector<QuantizableUse> quantizable_uses(
    Module& model, const TraceGraph& graph, bool quantizes_sums,
    const std::function<bool(const Module&)>& quantizable);

}  // namespace fq::detail
