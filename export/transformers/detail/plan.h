#pragma once

/// Plan of a network from its config.json: the nodes of the model, and the tensor in the file of each
/// parameter.

#include <string>
#include <vector>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/export/onnx/import.h"
#include "fakequant/export/transformers/detail/config.h"

namespace fq::detail {

/// A parameter of ours and where it comes from.
struct WeightPlace {
  std::string parameter;           ///< its path
  Shape shape;                     ///< of it
  std::vector<std::string> names;  ///< in the file: the first that is there
  bool transposed = false;         ///< whether the file has [in, out]
  std::int64_t first = 0;          ///< where it begins in the outputs of the file's tensor
  std::int64_t outputs = 0;        ///< of the file's tensor; 0: as many as it has itself
};

struct TransformerPlan {
  ModelNodes nodes;
  std::vector<WeightPlace> places;
  std::string prefix;  ///< of names in the file, which files of the network without its head lack
  std::vector<std::string> passed_over;  ///< patterns of names in the file that may be left
  Shape sample, output;                  ///< of one sample

  /// Appends a node to the network's own.
  void add(ModelNode node) { nodes.push_back(std::move(node)); }
  /// A linear layer, weight [out, in] and bias, under a name of ours and one of the file's.
  void linear(const std::string& ours, const std::string& theirs, std::int64_t in, std::int64_t out,
              bool bias = true);
  /// Parameters of one axis: of a norm, with its bias or without.
  void norm(const std::string& ours, const std::string& theirs, std::int64_t width, bool bias);
  void table(const std::string& ours, const std::string& theirs, std::int64_t rows, std::int64_t width);
  /// `lm_head`, the layer of a language model that tells the next token, and its axes as losses take them;
  /// with the weight of the layer at the path `tied`, unless that is empty.
  void head(std::int64_t width, std::int64_t vocabulary, const std::string& tied);
};

/// Returns a node. Without `inputs` it reads the node before it.
[[nodiscard]] ModelNode plan_node(const std::string& name, const std::string& type, NodeOptions options = {},
                                  const std::vector<std::string>& inputs = {});
/// Returns a graph of nodes under one name.
[[nodiscard]] ModelNode plan_graph(const std::string& name, ModelNodes nodes);
/// Returns the node of `TransformerConfig::activation` under a name.
[[nodiscard]] ModelNode plan_activation(const std::string& name, ModelNode node);

/// The tokens of a sample: as `options` say, or `fallback`; at most `most` (0: any number). Throws
/// ArgumentError.
[[nodiscard]] std::int64_t planned_tokens(const ImportOptions& options, std::int64_t fallback,
                                          std::int64_t most);
/// Throws ArgumentError where `options` fix inputs, or choose an output, of a network that has one of each.
void check_one_input(const ImportOptions& options);

using Planner = TransformerPlan (*)(const TransformerConfig&, const ImportOptions&);
[[nodiscard]] TransformerPlan plan_gpt2(const TransformerConfig& config, const ImportOptions& options);
/// Llama, Mistral, Qwen2 and Qwen3.
[[nodiscard]] TransformerPlan plan_llama(const TransformerConfig& config, const ImportOptions& options);
[[nodiscard]] TransformerPlan plan_bert(const TransformerConfig& config, const ImportOptions& options);

}  // namespace fq::detail
