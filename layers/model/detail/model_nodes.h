#pragma once

/// The steps from a text to a model.

#include <string_view>

#include "fakequant/core/io/detail/json_text.h"

namespace fq::detail {

constexpr std::size_t kMostNodes = 16384;  // of a model, nested ones included

[[nodiscard]] inline bool has_nested_nodes(std::string_view type) {
  return type == "sequential" || type == "graph";
}

/// The list of nodes of a model file: all of it, or its "nodes".
[[nodiscard]] JsonValue node_list(const JsonText& text);
/// Checks types, names, inputs and option names, and gives the same nodes with all their names and no default
/// inputs.
[[nodiscard]] nlohmann::ordered_json canonical_nodes(const JsonValue& nodes);
/// One node a line, nested ones indented.
[[nodiscard]] std::string nodes_text(const nlohmann::ordered_json& nodes, int indent);

/// `builtin_model_text` of options that lie in another text.
[[nodiscard]] std::string builtin_text(std::string_view name, const JsonValue* options);

}  // namespace fq::detail
