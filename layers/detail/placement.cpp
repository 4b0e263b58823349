#include "fakequant/layers/detail/placement.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "fakequant/core/ops/operators.h"
#include "fakequant/layers/modules/attention.h"
#include "fakequant/layers/modules/conv.h"
#include "fakequant/layers/modules/dot_product_attention.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/layers/modules/recurrent.h"

namespace fq::detail {
namespace {

// Disjoint sets of values that must share one scale (union-find; graphs are small, so without ranks).
class Groups {
 public:
  explicit Groups(std::size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), 0); }
  int find(int i) {
    while (parent_[static_cast<std::size_t>(i)] != i) i = parent_[static_cast<std::size_t>(i)];
    return i;
  }
  void tie(int a, int b) {
    if (a >= 0 && b >= 0) parent_[static_cast<std::size_t>(find(b))] = find(a);
  }

 private:
  std::vector<int> parent_;
};

/// Whether a value is never negative, because of ReLU or a similar operator.
bool non_negative(const TraceGraph& graph, int value) {
  const int producer = graph.values[static_cast<std::size_t>(value)].producer;
  if (producer < 0) return false;
  const TraceNode& node = graph.nodes[static_cast<std::size_t>(producer)];
  const OperatorTraits& op = traits(node.op);
  if (op.is_non_negative) return true;
  return op.keeps_sign &&
         std::ranges::all_of(node.inputs, [&](int input) { return input < 0 || non_negative(graph, input); });
}

}  // namespace

bool is_attention(const Module& module) {
  return dynamic_cast<const Attention*>(&module) != nullptr ||
         dynamic_cast<const DotProductAttention*>(&module) != nullptr;
}

std::vector<QuantizableUse> quantizable_uses(Module& model, const TraceGraph& graph, bool quantizes_sums,
                                             const std::function<bool(const Module&)>& quantizable) {
  Groups groups(graph.values.size());
  std::vector<QuantizableUse> uses;
  std::map<std::string, std::vector<int>> read;  // values read by the first call, by path
  std::vector<int> all_read;
  std::set<std::string> whole;  // recurrent layers, embeddings and attention
  for (const auto& node : graph.nodes) {
    // Max pooling, reshapes and the like move codes, so input and output share a scale.
    if (traits(node.op).keeps_codes) groups.tie(node.inputs[0], node.output);
    if (node.path.empty() || !quantizable(model.at(node.path))) continue;
    const Module& module = model.at(node.path);
    const bool has_weight = dynamic_cast<const Recurrent*>(&module) != nullptr ||
                            dynamic_cast<const Embedding*>(&module) != nullptr;
    if (has_weight || is_attention(module)) {
      if (whole.insert(node.path).second) uses.push_back({node.path, has_weight, {}});
      continue;
    }
    const bool weight =
        dynamic_cast<const Conv*>(&module) != nullptr || dynamic_cast<const Linear*>(&module) != nullptr;
    if (!weight && !quantizes_sums &&
        (module.type() == "add" || module.type() == "concat" || module.type() == "avg_pool" ||
         module.type() == "global_avg_pool"))
      continue;
    // A layer's second input is its weight.
    const std::vector<int> inputs(node.inputs.begin(), weight ? node.inputs.begin() + 1 : node.inputs.end());
    if (node.op == "concat")
      // Engines concatenate codes, which requires one scale.
      for (const int input : inputs) groups.tie(input, node.output);
    all_read.insert(all_read.end(), inputs.begin(), inputs.end());
    if (const auto [known, first] = read.try_emplace(node.path, inputs); !first) {
      for (std::size_t i = 0; i < std::min(inputs.size(), known->second.size()); ++i)
        // A module that runs several times has one quantizer for its input.
        groups.tie(known->second[i], inputs[i]);
      continue;
    }
    uses.push_back({node.path, weight, {}});
  }
  // A shared quantizer is unsigned only if all values of the group are.
  std::map<int, bool> sign_free;  // by group: whether no value is negative
  for (const int value : all_read) {
    auto& group = sign_free.try_emplace(groups.find(value), true).first->second;
    group = group && non_negative(graph, value);
  }
  for (auto& use : uses)
    for (const int value : read[use.path])
      use.tensors.push_back({groups.find(value), sign_free[groups.find(value)]});
  return uses;
}

}  // namespace fq::detail
