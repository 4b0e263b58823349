#include "fakequant/layers/model/detail/model_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "fakequant/layers/model/detail/layer_registry.h"

namespace fq::detail {
namespace {

using nlohmann::ordered_json;

NodeOption list_option(const JsonValue& value) {
  const auto all = [&](auto is) { return std::ranges::all_of(value.json(), is); };
  // Whole numbers first: a list with a fraction becomes a list of doubles.
  if (all([](const auto& each) { return whole_if<std::int64_t>(each).has_value(); }))
    return whole_values<std::int64_t>(value.json());
  if (all([](const auto& each) { return each.is_number(); })) return value.json().get<std::vector<double>>();
  value.fail(fmt::format("'{}' is a list of other values than numbers", value.key()));
}

NodeOption read_option(const JsonValue& value) {
  const auto& json = value.json();
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_string()) return json.get<std::string>();
  if (const auto whole = whole_if<std::int64_t>(json)) return *whole;
  if (json.is_number()) return json.get<double>();
  if (json.is_array()) return list_option(value);
  value.fail(fmt::format("'{}' is {}: use a number, a text, true or false, or a list of numbers", value.key(),
                         json.is_null() ? "null" : "an object"));
}

std::vector<std::string> read_inputs(const JsonValue& value) {
  if (!value.is_array()) return {value.string()};
  std::vector<std::string> out;
  for (const auto& input : value.elements()) out.push_back(input.string());
  if (out.empty()) value.fail("'inputs' is empty: leave it out for the node before, or name one");
  return out;
}

class NodeReader {
 public:
  explicit NodeReader(const std::shared_ptr<const JsonText>& text) : text_(text) {}

  ModelNodes nodes(const JsonValue& list) {
    if (!list.is_array() || list.size() == 0) list.fail("use a list of at least one node");
    ModelNodes out;
    for (const auto& entry : list.elements()) {
      // Limits the memory for files of unknown origin.
      if (++count_ > kMostNodes) entry.fail(fmt::format("more than {} nodes", kMostNodes));
      out.push_back(node(entry));
    }
    return out;
  }

 private:
  ModelNode node(const JsonValue& entry) {
    entry.expect_keys({"name", "type", "options", "inputs", "nodes"}, "of a node");
    ModelNode out{
        .name = {}, .type = entry.at("type").choice(layer_types()), .place = {text_, entry.pointer()}};
    if (entry.has("name")) {
      out.name = entry.at("name").string();
      if (out.name.empty()) entry.at("name").fail("'' is not a name: leave it out, or give one");
    }
    if (entry.has("inputs")) out.inputs = read_inputs(entry.at("inputs"));
    if (has_nested_nodes(out.type)) {
      if (entry.has("options"))
        entry.at("options").fail(fmt::format("a \"{}\" has nodes instead of options", out.type));
      out.nodes = nodes(entry.at("nodes"));
      return out;
    }
    if (entry.has("nodes")) entry.at("nodes").fail("only \"sequential\" and \"graph\" have nodes");
    if (!entry.has("options")) return out;
    const auto options = entry.at("options");
    // The type is known here, because choice() accepted it.
    options.expect_keys(layer_registry().find(out.type)->second.options, fmt::format("of {}", out.type));
    for (const auto& [key, value] : options.json().items()) out.options[key] = read_option(options.at(key));
    return out;
  }

  const std::shared_ptr<const JsonText>& text_;
  std::size_t count_ = 0;
};

/// Returns JSON on one line, with a space after each comma and colon.
std::string line_text(const ordered_json& value) {
  if (!value.is_structured()) return value.dump();
  std::string out;
  for (const auto& [key, element] : value.items())
    out += (out.empty() ? "" : ", ") + (value.is_object() ? ordered_json(key).dump() + ": " : "") +
           line_text(element);
  return value.is_object() ? "{" + out + "}" : "[" + out + "]";
}

ordered_json options_json(const NodeOptions& options) {
  auto out = ordered_json::object();
  for (const auto& [name, option] : options) out[name] = option_json(option);
  return out;
}

std::string nodes_text(const ModelNodes& nodes, int indent, bool inputs_last) {
  std::string out = "[\n";
  for (const auto& node : nodes) {
    ordered_json line{{"name", node.name}, {"type", node.type}};
    if (!node.inputs.empty() && !inputs_last) line["inputs"] = node.inputs;
    if (!node.options.empty()) line["options"] = options_json(node.options);
    if (!node.inputs.empty() && inputs_last) line["inputs"] = node.inputs;
    auto text = line_text(line);
    if (has_nested_nodes(node.type)) {
      // Replaces the closing brace by the nested nodes.
      text.pop_back();
      text += ", \"nodes\": " + nodes_text(node.nodes, indent + 2, inputs_last) + "}";
    }
    out += std::string(static_cast<std::size_t>(indent) + 2, ' ') + text +
           (&node == &nodes.back() ? "\n" : ",\n");
  }
  return out + std::string(static_cast<std::size_t>(indent), ' ') + "]";
}

bool same_node(const ModelNode& a, const ModelNode& b) {
  return a.name == b.name && a.type == b.type && a.inputs == b.inputs &&
         // nlohmann::json sorts keys, so the order of options does not matter.
         nlohmann::json(options_json(a.options)) == nlohmann::json(options_json(b.options)) &&
         same_nodes(a.nodes, b.nodes);
}

}  // namespace

ModelNodes read_nodes(const JsonValue& list, const std::shared_ptr<const JsonText>& text) {
  return NodeReader(text).nodes(list);
}

std::string model_text(std::string_view name, const ModelNodes& nodes, bool inputs_last) {
  return fmt::format("{{\"name\": {}, \"nodes\": {}}}\n", ordered_json(name).dump(),
                     nodes_text(nodes, 0, inputs_last));
}

ordered_json option_json(const NodeOption& option) {
  return std::visit([](const auto& value) { return ordered_json(value); }, option);
}

bool same_nodes(const ModelNodes& a, const ModelNodes& b) { return std::ranges::equal(a, b, same_node); }

}  // namespace fq::detail
