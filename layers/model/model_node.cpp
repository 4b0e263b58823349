#include "fakequant/layers/model/model_node.h"

#include <algorithm>
#include <cctype>
#include <set>

#include <fmt/format.h>

#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/layers/model/detail/layer_registry.h"

namespace fq {

// A list keeps the order of the file, and nodes have few options.
const NodeOption* NodeOptions::find(std::string_view name) const noexcept {
  const auto found = std::ranges::find(entries_, name, &Entry::first);
  return found == entries_.end() ? nullptr : &found->second;
}

NodeOption& NodeOptions::operator[](std::string_view name) {
  const auto found = std::ranges::find(entries_, name, &Entry::first);
  return found == entries_.end() ? entries_.emplace_back(name, NodeOption()).second : found->second;
}

void NodeOptions::update(const NodeOptions& other) {
  for (const auto& [name, value] : other) (*this)[name] = value;
}

NodePlace::NodePlace(std::shared_ptr<const detail::JsonText> text, std::string pointer)
    : origin_(text->origin()), pointer_(std::move(pointer)), text_(std::move(text)) {}

void NodePlace::fail(const std::string& message, const std::string& part) const {
  // JsonText::fail adds file and line and throws.
  if (text_ != nullptr) text_->fail(pointer_ + part, message);
  throw ArgumentError((origin_.empty() ? "[model] " : origin_) + message);
}

namespace detail {
namespace {

using Names = std::set<std::string>;

/// Accepts a name, "conv1", or a path, "layer1.0.conv1".
bool is_name(const std::string& name) {
  constexpr std::size_t most = 200;
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= most && std::ranges::all_of(name, allowed) && name.front() != '.' &&
         name.back() != '.' && name.find("..") == std::string::npos;
}

// Names become paths of parameters and names in exported files.
void check_name(ModelNode& node, std::size_t position, const Names& taken) {
  if (node.name.empty()) {
    node.name = fmt::format("{}_{}", node.type, position);
    while (taken.contains(node.name)) node.name += "_";
    return;
  }
  if (!is_name(node.name))
    node.place.fail(fmt::format("'{}' is not a name: use letters, digits, '_' and '-', and dots between them",
                                node.name.substr(0, 80)),
                    "/name");
  if (node.name == "input")
    node.place.fail("'input' is the network's input: use the node another name", "/name");
  if (taken.contains(node.name))
    node.place.fail(fmt::format("there are two nodes named '{}'", node.name), "/name");
}

void check_inputs(ModelNode& node, const std::string& previous, const Names& earlier) {
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const auto& input = node.inputs[i];
    if (earlier.contains(input)) continue;
    const std::string shown = input.substr(0, 80);
    node.place.fail(fmt::format("'{}' is no earlier node{}", shown,
                                did_you_mean(shown, {earlier.begin(), earlier.end()})),
                    fmt::format("/inputs/{}", i));
  }
  // The node before is the default. Without it, equal models compare equal.
  if (node.inputs == std::vector{previous}) node.inputs.clear();
}

void check_type(const ModelNode& node) {
  if (has_nested_nodes(node.type) || layer_registry().contains(node.type)) return;
  const std::string shown = shortened(node.type);
  node.place.fail(fmt::format("unknown type '{}'{}", shown, did_you_mean(shown, layer_types())), "/type");
}

void check_option_names(const ModelNode& node) {
  const auto& known = layer_registry().find(node.type)->second.options;
  for (const auto& [name, value] : node.options) {
    if (std::ranges::find(known, name) != known.end()) continue;
    const std::string shown = shortened(name);
    node.place.fail(fmt::format("unknown key '{}' of {}{}", shown, node.type,
                                known.empty() ? ": it has no options" : did_you_mean(shown, known)),
                    "/options/" + json_pointer_token(name));
  }
}

class NodeChecker {
 public:
  void check(ModelNodes& nodes, bool with_inputs) {
    Names names{"input"};
    std::string previous = "input";
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      ModelNode& node = nodes[i];
      // Counted across all levels of nesting.
      if (++count_ > kMostNodes) node.place.fail(fmt::format("more than {} nodes", kMostNodes));
      check_type(node);
      check_name(node, i, names);
      if (node.place.empty()) node.place = NodePlace(fmt::format("[model] node '{}': ", node.name));
      if (!with_inputs && !node.inputs.empty())
        node.place.fail("the nodes of a \"sequential\" have no inputs: use a \"graph\"", "/inputs");
      check_inputs(node, previous, names);
      check_content(node);
      previous = node.name;
      // After the node's own checks: a node may read earlier nodes only, so a model has no cycles.
      names.insert(previous);
    }
  }

 private:
  void check_content(ModelNode& node) {
    if (!has_nested_nodes(node.type)) {
      if (!node.nodes.empty()) node.place.fail("only \"sequential\" and \"graph\" have nodes", "/nodes");
      return check_option_names(node);
    }
    if (!node.options.empty())
      node.place.fail(fmt::format("a \"{}\" has nodes instead of options", node.type), "/options");
    if (node.nodes.empty()) node.place.fail("use a list of at least one node", "/nodes");
    check(node.nodes, node.type == "graph");
  }

  std::size_t count_ = 0;
};

}  // namespace

ModelNodes checked_nodes(ModelNodes nodes) {
  NodeChecker().check(nodes, true);
  return nodes;
}

}  // namespace detail
}  // namespace fq
