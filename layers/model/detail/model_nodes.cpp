#include "fakequant/layers/model/detail/model_nodes.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "fakequant/core/detail/text.h"
#include "fakequant/layers/model/detail/layer_registry.h"

namespace fq::detail {
namespace {

using nlohmann::ordered_json;
using Names = std::set<std::string>;

/// "conv1", or a path: "layer1.0.conv1".
bool is_name(const std::string& name) {
  constexpr std::size_t most = 200;
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= most && std::ranges::all_of(name, allowed) && name.front() != '.' &&
         name.back() != '.' && name.find("..") == std::string::npos;
}

std::string node_name(const JsonValue& node, const std::string& type, std::size_t place, const Names& taken) {
  if (!node.has("name")) {
    auto name = fmt::format("{}_{}", type, place);
    while (taken.contains(name)) name += "_";
    return name;
  }
  const auto value = node.at("name");
  auto name = value.string();
  if (!is_name(name))
    value.fail(fmt::format("'{}' is not a name: use letters, digits, '_' and '-', and dots between them",
                           name.substr(0, 80)));
  if (name == "input") value.fail("'input' is the network's input: give the node another name");
  if (taken.contains(name)) value.fail(fmt::format("there are two nodes named '{}'", name));
  return name;
}

std::vector<std::string> node_inputs(const JsonValue& value, const Names& earlier) {
  const auto check = [&](const JsonValue& input) {
    const auto name = input.string();
    if (earlier.contains(name)) return name;
    input.fail(fmt::format("'{}' is no earlier node{}", name.substr(0, 80),
                           did_you_mean(name.substr(0, 80), {earlier.begin(), earlier.end()})));
  };
  if (!value.is_array()) return {check(value)};
  std::vector<std::string> out;
  for (const auto& input : value.elements()) out.push_back(check(input));
  if (out.empty()) value.fail("'inputs' is empty: leave it out for the node before, or name one");
  return out;
}

class NodeReader {
 public:
  ModelNodes nodes(const JsonValue& list, bool with_inputs) {
    if (!list.is_array() || list.size() == 0) list.fail("give a list of at least one node");
    ModelNodes out;
    Names names{"input"};
    std::string previous = "input";
    for (const auto& entry : list.elements()) {
      if (++count_ > kMostNodes) fail_too_many(entry);
      out.push_back(node(entry, out.size(), names, previous, with_inputs));
      previous = out.back().name;
      names.insert(previous);
    }
    return out;
  }

 private:
  ModelNode node(const JsonValue& entry, std::size_t place, const Names& names, const std::string& previous,
                 bool with_inputs) {
    entry.expect_keys({"name", "type", "options", "inputs", "nodes"}, "of a node");
    const auto type = entry.at("type").choice(layer_types());
    ModelNode out{node_name(entry, type, place, names), type};
    if (entry.has("inputs")) {
      if (!with_inputs)
        entry.at("inputs").fail("the nodes of a \"sequential\" have no inputs: use a \"graph\"");
      out.inputs = node_inputs(entry.at("inputs"), names);
      drop_default_inputs(out, previous);
    }
    if (has_nested_nodes(type)) {
      if (entry.has("options"))
        entry.at("options").fail(fmt::format("a \"{}\" has nodes in place of options", type));
      out.nodes = nodes(entry.at("nodes"), type == "graph");
    } else if (entry.has("nodes")) {
      entry.at("nodes").fail("only \"sequential\" and \"graph\" have nodes");
    } else if (entry.has("options")) {
      const auto options = entry.at("options");
      options.expect_keys(layer_registry().find(type)->second.options, fmt::format("of {}", type));
      if (options.size() > 0) out.options = options.json();
    }
    return out;
  }

  std::size_t count_ = 0;
};

ordered_json nodes_json(const ModelNodes& nodes) {
  auto out = ordered_json::array();
  for (const auto& node : nodes) {
    ordered_json entry{{"name", node.name}, {"type", node.type}};
    if (!node.inputs.empty()) entry["inputs"] = node.inputs;
    if (!node.options.empty()) entry["options"] = node.options;
    if (has_nested_nodes(node.type)) entry["nodes"] = nodes_json(node.nodes);
    out.push_back(std::move(entry));
  }
  return out;
}

/// On one line, with a blank after each comma and colon.
std::string line_text(const ordered_json& value) {
  if (!value.is_structured()) return value.dump();
  std::string out;
  for (const auto& [key, element] : value.items())
    out += (out.empty() ? "" : ", ") + (value.is_object() ? ordered_json(key).dump() + ": " : "") +
           line_text(element);
  return value.is_object() ? "{" + out + "}" : "[" + out + "]";
}

std::string nodes_text(const ordered_json& nodes, int indent) {
  std::string out = "[\n";
  for (const auto& node : nodes) {
    auto line = node;
    line.erase("nodes");
    auto text = line_text(line);
    if (node.contains("nodes")) {
      text.pop_back();
      text += ", \"nodes\": " + nodes_text(node["nodes"], indent + 2) + "}";
    }
    out += std::string(static_cast<std::size_t>(indent) + 2, ' ') + text +
           (&node == &nodes.back() ? "\n" : ",\n");
  }
  return out + std::string(static_cast<std::size_t>(indent), ' ') + "]";
}

}  // namespace

JsonValue node_list(const JsonText& text) {
  const JsonValue root(text);
  return root.is_array() ? root : root.at("nodes");
}

ModelNodes read_nodes(const JsonValue& list) { return NodeReader().nodes(list, true); }

void drop_default_inputs(ModelNode& node, const std::string& previous) {
  if (node.inputs == std::vector{previous}) node.inputs.clear();
}

void fail_too_many(const JsonValue& node) { node.fail(fmt::format("more than {} nodes", kMostNodes)); }

ordered_json model_json(std::string_view name, const ModelNodes& nodes) {
  return {{"name", name}, {"nodes", nodes_json(nodes)}};
}

std::string model_text(const ordered_json& model) {
  return fmt::format("{{\"name\": {}, \"nodes\": {}}}\n", model["name"].dump(),
                     nodes_text(model["nodes"], 0));
}

}  // namespace fq::detail
