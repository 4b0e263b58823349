#pragma once

/// Plan of a network from its config.json: the nodes of the model, and the tensor in the file of each
/// parameter.

#include <string>
#include <vector>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/export/onnx/import.h"
#include "fakequant/export/transformers/detail/config.h"

namespace fq::detail {

/// A parameter of the model and its source in the file.
struct WeightPlace {
  std::string parameter;           ///< path of the parameter
  Shape shape;                     ///< shape of the parameter
  std::vector<std::string> names;  ///< names in the file; the first one that exists is used
  bool transposed = false;         ///< whether the file has [in, out]
  std::int64_t first = 0;          ///< first row in the outputs of the file's tensor
  std::int64_t outputs = 0;        ///< outputs of the file's tensor; 0: same as the parameter
};

struct TransformerPlan {
  ModelNodes nodes;
  std::vector<WeightPlace> places;
  std::string prefix;                    ///< prefix of names in the file; files without a head lack it
  std::vector<std::string> passed_over;  ///< patterns of names in the file that may stay unused
  Shape sample, output;                  ///< shapes of one sample

  /// Appends a node to the nodes of the network.
  void add(ModelNode node) { nodes.push_back(std::move(node)); }
  /// Adds weight [out, in] and bias of a linear layer. `ours` is its name in the model, `theirs` in the file.
  void linear(const std::string& ours, const std::string& theirs, std::int64_t in, std::int64_t out,
              bool bias = true);
  /// Adds the parameters of a norm, with or without bias.
  void norm(const std::string& ours, const std::string& theirs, std::int64_t width, bool bias);
  void table(const std::string& ours, const std::string& theirs, std::int64_t rows, std::int64_t width);
  /// Adds `lm_head`, the output layer of a language model, and moves its classes to the axis that losses
  /// expect. It shares the weight of the layer at the path `tied`, unless that is empty.
  void head(std::int64_t width, std::int64_t vocabulary, const std::string& tied);
};

/// Returns a node. Without `inputs`, it reads the node before it.
[[nodiscard]] ModelNode plan_node(const std::string& name, const std::string& type, NodeOptions options = {},
                                  const std::vector<std::string>& inputs = {});
/// Returns a graph node with nested nodes.
[[nodiscard]] ModelNode plan_graph(const std::string& name, ModelNodes nodes);
/// Returns the node of `TransformerConfig::activation` with a name.
[[nodiscard]] ModelNode plan_activation(const std::string& name, ModelNode node);

/// Returns the tokens of a sample: the value in `options`, or `fallback`, at most `most` (0: no limit).
/// Throws ArgumentError.
[[nodiscard]] std::int64_t planned_tokens(const ImportOptions& options, std::int64_t fallback,
                                          std::int64_t most);
/// Throws ArgumentError if `options` fix inputs or choose an output. The network has one input and one
/// output.
void check_one_input(const ImportOptions& options);

using Planner = TransformerPlan (*)(const TransformerConfig&, const ImportOptions&);
[[nodiscard]] TransformerPlan plan_gpt2(const TransformerConfig& config, const ImportOptions& options);
/// Plans Llama, Mistral, Qwen2 and Qwen3.
[[nodiscard]] TransformerPlan plan_llama(const TransformerConfig& config, const ImportOptions& options);
[[nodiscard]] TransformerPlan plan_bert(const TransformerConfig& config, const ImportOptions& options);

}  // namespace fq::detail
