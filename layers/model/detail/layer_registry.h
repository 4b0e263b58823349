#pragma once

/// Where layer types are kept, and what building a model may cost.

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

/// Numbers of options are at most this large.
inline constexpr double kLargestOption = 1e30;

/// The types of this process, the built-in ones at first.
[[nodiscard]] LayerRegistry& layer_registry();
/// The types that come with the library.
[[nodiscard]] LayerRegistry standard_layer_types();
/// Those of them that have parameters but are no convolutions: linear layers, norms, recurrent ones, tables.
[[nodiscard]] LayerRegistry weighted_layer_types();
/// Those of them that move a window: convolutions and pools.
[[nodiscard]] LayerRegistry window_layer_types();

constexpr std::size_t kMostNodes = 16384;  // of a model, nested ones included

[[nodiscard]] inline bool has_nested_nodes(std::string_view type) {
  return type == "sequential" || type == "graph";
}

/// Checks types, names, inputs and names of options. Gives each node a name and a place, and removes inputs
/// that are the node before it.
[[nodiscard]] ModelNodes checked_nodes(ModelNodes nodes);

}  // namespace fq::detail
