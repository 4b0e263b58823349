#pragma once

/// Registry of layer types, and the memory limit of building a model.

#include <map>

#include "fakequant/layers/model/model_node.h"
#include "fakequant/layers/model/model_types.h"

namespace fq::detail {

/// Counts the elements of a model's parameters while it is built.
struct ModelBudget {
  std::int64_t limit = 0;
  std::int64_t used = 0;
};

struct LayerType {
  std::vector<std::string> options;
  LayerFactory make;
};
using LayerRegistry = std::map<std::string, LayerType, std::less<>>;

/// Largest number that an option may have.
inline constexpr double kLargestOption = 1e30;

/// Returns the types of this process. Initially these are the built-in types.
[[nodiscard]] LayerRegistry& layer_registry();
/// Returns the built-in types.
[[nodiscard]] LayerRegistry standard_layer_types();
/// Returns the built-in types with parameters, except convolutions: linear layers, norms, recurrent layers,
/// tables.
[[nodiscard]] LayerRegistry weighted_layer_types();
/// Returns the built-in types that move a window: convolutions and pools.
[[nodiscard]] LayerRegistry window_layer_types();

constexpr std::size_t kMostNodes = 16384;  // largest number of nodes in a model, including nested nodes

[[nodiscard]] inline bool has_nested_nodes(std::string_view type) {
  return type == "sequential" || type == "graph";
}

/// Checks types, names, inputs and names of options. Gives each node a name and a place, and removes inputs
/// that are the node before it.
[[nodiscard]] ModelNodes checked_nodes(ModelNodes nodes);

}  // namespace fq::detail
