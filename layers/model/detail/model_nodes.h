#pragma once

/// The steps from a text to a model.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/core/io/detail/json_text.h"

namespace fq::detail {

constexpr std::size_t kMostNodes = 16384;  // of a model, nested ones included

[[nodiscard]] inline bool has_nested_nodes(std::string_view type) {
  return type == "sequential" || type == "graph";
}

/// A node of a model. Its options are JSON, as its type alone knows what they mean.
struct ModelNode {
  std::string name, type;
  nlohmann::ordered_json options = {};   ///< an object with members, or null
  std::vector<std::string> inputs = {};  ///< empty for the node before it
  std::vector<ModelNode> nodes = {};     ///< of "sequential" and "graph"
};
using ModelNodes = std::vector<ModelNode>;

/// What a model is built of: its nodes, and a text that has a value for each of them, for errors to point at.
struct ModelSource {
  ModelNodes nodes;
  std::shared_ptr<const JsonText> text;
};

/// The list of nodes of a model file: all of it, or its "nodes".
[[nodiscard]] JsonValue node_list(const JsonText& text);
/// Checks types, names, inputs and names of options, and gives the nodes with all their names and without
/// default inputs.
[[nodiscard]] ModelNodes read_nodes(const JsonValue& list);
/// Inputs that are the node before it are left out.
void drop_default_inputs(ModelNode& node, const std::string& previous);
/// For the first node beyond kMostNodes.
[[noreturn]] void fail_too_many(const JsonValue& node);
/// The nodes of a built-in model: see `builtin_model_text`. `options` may be null.
[[nodiscard]] ModelNodes builtin_nodes(std::string_view name, const JsonValue* options);
/// The same with options that are a text, empty for none.
[[nodiscard]] ModelNodes builtin_nodes(std::string_view name, std::string_view options);

/// `{"name": .., "nodes": [..]}`, as a value and as text: one node a line, nested ones indented.
[[nodiscard]] nlohmann::ordered_json model_json(std::string_view name, const ModelNodes& nodes);
[[nodiscard]] std::string model_text(const nlohmann::ordered_json& model);

}  // namespace fq::detail
