#pragma once

/// The model that an import makes, node by node.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/tensor.h"
#include "fakequant/export/onnx/model.h"
#include "fakequant/export/onnx/reader/node_reader.h"
#include "fakequant/layers/model/detail/layer_registry.h"
#include "fakequant/layers/model/detail/symbolic_batch.h"
#include "fakequant/layers/model/model_file.h"

namespace fq::detail {

/// The output of one of our nodes (or "input"), with its shape; or a constant. Of the sizes of what depends
/// on the network's input one is a multiple of the batch.
struct ImportValue {
  std::string node;
  Shape shape;
  Tensor constant;
  bool learned = false;  ///< of a constant: made of what the file has been trained to
  bool fixed = false;    ///< a node that gives the same for every batch, [1, ..]

  [[nodiscard]] bool is_constant() const noexcept { return constant.defined(); }
  /// Whether it has no elements: no layer gives it, and a Concat alone may read it.
  [[nodiscard]] bool is_empty() const noexcept { return !is_constant() && node.empty() && !shape.empty(); }
};

[[nodiscard]] inline int rank_of(const ImportValue& x) { return static_cast<int>(x.shape.size()); }

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

/// Parameters and buffers of a node: {"parameters", "weight"} -> tensor.
struct LayerValue {
  const char* kind;
  const char* name;
  Tensor value;
};

class ModelBuilder {
 public:
  /// `limit` is of the elements of all parameters together.
  explicit ModelBuilder(std::int64_t limit) : budget_{limit, 0} {}

  /// Adds a node called `name`, or the like where that is taken, and finds the shape of its output by running
  /// its layer on `meta`. Throws ArgumentError naming `from` when layer and inputs do not fit.
  ImportValue add(const NodeReader& from, const std::string& name, const std::string& type,
                  NodeOptions options, const std::vector<ImportValue>& inputs,
                  const std::vector<LayerValue>& values);

  /// A layer that was added, with all its inputs.
  struct Layer : ModelNode {
    std::vector<LayerValue> values;
    ImportValue output;
  };
  /// The layer of that name; null for the network's input.
  [[nodiscard]] const Layer* find(const std::string& name) const;

  struct Built {
    ModelSpec spec;
    StateDict state;
  };
  /// The nodes that `output` needs, which comes last, and all parts of the data.
  [[nodiscard]] Built finish(const std::string& name, const ImportValue& output) const;

 private:
  std::string unique(const std::string& name);

  ModelBudget budget_;
  std::vector<Layer> nodes_;
  std::map<std::string, std::size_t> place_;
  std::set<std::string> names_{"input"};
  std::map<std::string, int> next_;  // the last number behind each name
};

}  // namespace fq::detail
