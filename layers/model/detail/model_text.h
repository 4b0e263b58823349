#pragma once

/// Text of model files. Only these functions convert nodes to and from JSON.

#include <memory>
#include <string>
#include <string_view>

#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/model/model_node.h"

namespace fq::detail {

/// Reads the list of nodes at `list`. The nodes keep `text` for the lines of errors. Throws for values of
/// a wrong type. `checked_nodes` checks names and inputs.
[[nodiscard]] ModelNodes read_nodes(const JsonValue& list, const std::shared_ptr<const JsonText>& text);
/// Writes `{"name": .., "nodes": [..]}`, one node a line, nested ones indented. The inputs of a node are
/// before its options, or with `inputs_last` after them.
[[nodiscard]] std::string model_text(std::string_view name, const ModelNodes& nodes,
                                     bool inputs_last = false);
/// Returns an option as JSON: `2`, `"same"`, `[1, 2]`.
[[nodiscard]] nlohmann::ordered_json option_json(const NodeOption& option);
/// Whether both have the same types, names, inputs and options. The order of options does not matter.
[[nodiscard]] bool same_nodes(const ModelNodes& a, const ModelNodes& b);

}  // namespace fq::detail
