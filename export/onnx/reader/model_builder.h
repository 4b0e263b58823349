#pragma once

/// The model that an import makes, node by node.

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/export/onnx/reader/node_reader.h"
#include "fakequant/export/onnx/reader/value.h"
#include "fakequant/layers/model/detail/layer_registry.h"
#include "fakequant/layers/model/model_file.h"

namespace fq::detail {

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
