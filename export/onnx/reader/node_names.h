#pragma once

/// Names of layers from those of ONNX nodes and weights.

#include <set>
#include <string>
#include <vector>

#include "fakequant/export/onnx/model.h"

namespace fq::detail {

/// The path of the module that made a node, "layer1.0.conv1" of "/layer1/layer1.0/conv1/Conv"; empty when its
/// name is not a path.
[[nodiscard]] std::string module_path_of(const OnnxNode& node);

/// `text` in a model file's letters, cut to a length that a name may have: letters, digits, '_' and '-'.
[[nodiscard]] std::string legal_name(std::string text);

class NodeNames {
 public:
  explicit NodeNames(const std::vector<OnnxNode>& nodes);

  /// The name, in a model file's letters, of a layer of that type which the node becomes: the path of the
  /// node's module, or what its weights' names have in common ("layer1.0.conv1.weight"), or its type. A
  /// function that a module with several nodes calls has its type behind the module's path: "layer1_0_add".
  /// Layers that a node makes beside its main one have a `suffix`.
  [[nodiscard]] std::string name(const OnnxNode& node, const std::string& type,
                                 const std::string& suffix = {}) const;

 private:
  [[nodiscard]] bool is_shared(const std::string& path) const;

  std::multiset<std::string> paths_;
};

}  // namespace fq::detail
