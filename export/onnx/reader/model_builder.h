#pragma once

/// Builds the model of an import node by node: values, names and layers.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/tensor.h"
#include "fakequant/export/onnx/model.h"
#include "fakequant/export/onnx/reader/node_reader.h"
#include "fakequant/layers/model/detail/layer_registry.h"
#include "fakequant/layers/model/detail/symbolic_batch.h"
#include "fakequant/layers/model/model_file.h"

namespace fq::detail {

/// A value during the import: the output of a node (or "input") with its shape, or a constant. A value that
/// depends on the network's input has a batch axis.
struct ImportValue {
  std::string node;
  Shape shape;
  Tensor constant;
  bool learned = false;  ///< whether a constant depends on trained values of the file
  bool fixed = false;    ///< a node that is the same for every batch, [1, ..]

  [[nodiscard]] bool is_constant() const noexcept { return constant.defined(); }
  /// Whether the value has no elements. No layer returns an empty value, and only a Concat may read one.
  [[nodiscard]] bool is_empty() const noexcept { return !is_constant() && node.empty() && !shape.empty(); }
};

[[nodiscard]] inline int value_rank(const ImportValue& x) { return static_cast<int>(x.shape.size()); }

/// Returns the module path of a node: "layer1.0.conv1" for "/layer1/layer1.0/conv1/Conv". Returns an empty
/// text if the name is not a path.
[[nodiscard]] std::string node_module_path(const OnnxNode& node);

/// Returns `text` as a legal name of a node: letters, digits, '_' and '-', at most 80 of them.
[[nodiscard]] std::string legal_name(std::string text);

class NodeNames {
 public:
  explicit NodeNames(const std::vector<OnnxNode>& nodes);

  /// Returns a legal name for a layer of a type: the path of the node's module, or the path of its weights
  /// ("layer1.0.conv1.weight"), or the type. A node of a module with several nodes has its type after the
  /// path: "layer1_0_add". Additional layers of a node have a `suffix`.
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
  /// `limit` is the largest number of elements of all parameters together.
  explicit ModelBuilder(std::int64_t limit) : budget_{limit, 0} {}

  /// Adds a node named `name`, or a similar name if that is already used. Runs its layer on `meta` to find
  /// the shape of its output. Throws ArgumentError that names `from` if layer and inputs do not fit.
  ImportValue add(const NodeReader& from, const std::string& name, const std::string& type,
                  NodeOptions options, const std::vector<ImportValue>& inputs,
                  const std::vector<LayerValue>& values);

  /// An added layer with all its inputs.
  struct Layer : ModelNode {
    std::vector<LayerValue> values;
    ImportValue output;
  };
  /// Returns the layer with that name, or null for the network's input.
  [[nodiscard]] const Layer* find(const std::string& name) const;

  struct Built {
    ModelSpec spec;
    StateDict state;
  };
  /// Returns the nodes that `output` needs, with `output` last, and all parts of the data.
  [[nodiscard]] Built finish(const std::string& name, const ImportValue& output) const;

 private:
  std::string unique(const std::string& name);

  ModelBudget budget_;
  std::vector<Layer> nodes_;
  std::map<std::string, std::size_t> place_;
  std::set<std::string> names_{"input"};
  std::map<std::string, int> next_;  // last number appended to each name
};

}  // namespace fq::detail
