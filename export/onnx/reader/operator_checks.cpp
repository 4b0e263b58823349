#include "fakequant/export/onnx/reader/operator_checks.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/error.h"
#include "fakequant/export/onnx/reader/node_reader.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail {
namespace {

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const auto end = std::min(text.find(at), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

/// Removes the first `mark` and all text after it, and returns the removed text.
std::string_view take_suffix(std::string_view& text, char mark) {
  const auto at = text.find(mark);
  if (at == std::string_view::npos) return {};
  const auto rest = text.substr(at + 1);
  text = text.substr(0, at);
  return rest;
}

/// Whether `text` ended with `mark`, which is removed.
bool cut_mark(std::string_view& text, char mark) {
  if (!text.ends_with(mark)) return false;
  text.remove_suffix(1);
  return true;
}

/// Reads and removes "@11-17".
void read_opsets(std::string_view& text, SchemaEntry& entry) {
  std::string_view opsets = take_suffix(text, '@');
  if (opsets.empty()) return;
  const std::string_view last = take_suffix(opsets, '-');
  if (!opsets.empty()) std::from_chars(opsets.data(), opsets.data() + opsets.size(), entry.first);
  if (!last.empty()) std::from_chars(last.data(), last.data() + last.size(), entry.last);
}

std::string type_words(std::string_view type) {
  if (type == "i") return "an integer";
  if (type == "f") return "a float";
  if (type == "s") return "a string";
  if (type == "is") return "a list of integers";
  if (type == "fs") return "a list of floats";
  if (type == "ss") return "a list of strings";
  if (type == "t") return "a tensor";
  if (type == "g") return "a graph";
  return "of a type that no supported operator has";
}

/// Returns the schema letters for the type of an attribute.
std::string_view type_letters(const OnnxNode& node, const std::string& name, const OnnxAttribute& value) {
  // In the order of the alternatives of OnnxAttribute.
  constexpr std::string_view letters[] = {"", "i", "f", "s", "is", "fs", "ss", "t"};
  static_assert(std::variant_size_v<OnnxAttribute> == std::size(letters));
  const bool is_graph = std::ranges::find(node.branches, name, &OnnxBranch::name) != node.branches.end();
  return is_graph ? "g" : letters[value.index()];
}

std::string value_text(const OnnxAttribute& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr ? text->substr(0, 80) : "";
}

/// Returns "opset 7 to 12" or "opset 13 and later".
std::string opsets_text(int first, int last) {
  if (last == kLastOpset) return fmt::format("opset {} and later", first);
  if (first == last) return fmt::format("opset {}", first);
  return fmt::format("opset {} to {}", first, last);
}

template <class Entry>
std::string names_text(const std::vector<Entry>& entries, int opset) {
  std::vector<std::string_view> names;
  for (const auto& entry : entries)
    if (entry.is_in(opset)) names.push_back(entry.name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

void check_value(const NodeReader& reader, const SchemaAttribute& known, const OnnxAttribute& value) {
  const std::string_view type = type_letters(reader.node(), known.name, value);
  reader.check(type == known.type, "attribute '{}' is {}: it must be {}", known.name, type_words(type),
               type_words(known.type));
  // Without a list the builder reads the value. With a list, any other value is an error.
  if (known.allowed.empty()) return;
  const std::string text = value_text(value);
  reader.check(std::ranges::find(known.allowed, text) != known.allowed.end(),
               "attribute '{}' is {}: {} is supported", known.name, text, fmt::join(known.allowed, " or "));
}

/// Checks the opsets. Domains other than ONNX must have version 1.
void check_opsets(const OnnxModel& model) {
  FQ_CHECK(model.opset >= kFirstOpset && model.opset <= kLastOpset, "import_onnx",
           "opset: {} is not supported, {} to {} are. Export the model with one of them "
           "(torch.onnx.export(.., opset_version=18))",
           model.opset, kFirstOpset, kLastOpset);
  for (const auto& [domain, version] : model.other_opsets)
    FQ_CHECK((domain != "com.microsoft" && domain != "trt") || version == 1, "import_onnx",
             "opset of {}: {} is not supported, 1 is", domain, version);
}

constexpr std::size_t kMostNamed = 50;  // nodes listed per operator
constexpr std::string_view kFunction = "[import_onnx] ";

struct WayRound {
  std::string_view pattern;
  const char* way;
};

/// The first matching entry applies.
constexpr WayRound kWays[] = {
    {"*QuantizeLinear*",
     "the file is quantized: import the float one, or use the checkpoint that it was exported from"},
    {"*QLinear*",
     "the file is quantized: import the float one, or use the checkpoint that it was exported from"},
    {"*Integer*", "the file is quantized: import the float one"},
    {"*DynamicQuantize*",
     "the file is quantized: import the float one, or use the checkpoint that it was exported from"},
    {"com.microsoft.*", "an optimiser of ONNX Runtime fused it: import the file before the optimisation"},
    {"*.*", "operators of other domains are not supported: export the model with ONNX operators only"},
    {"If*",
     "its condition is computed from the input: export without branches, torch.onnx.export traces one way"},
    {"Loop*", "export without loops: torch.onnx.export unrolls loops of fixed length"},
    {"Scan*", "export without loops: torch.onnx.export unrolls loops of fixed length"},
    {"ArgMax*", "export the network up to its logits"},
    {"TopK*", "export the network up to its logits"},
    {"NonMaxSuppression*", "export the network up to its logits"},
    {"Gather of other*", "select by constants: torch.index_select, or slices"},
    {"GatherND*", "use constant indices"},
    {"Sequence*",
     "lists of tensors: torch.nn.EmbeddingBag is written so, an Embedding and a mean of its rows are not"},
    {"ConcatFromSequence*", "lists of tensors: stack them by torch.stack, with a fixed number of them"},
    {"Col2Im*",
     "torch.nn.Fold is written so: add up patches by a transposed convolution with a fixed weight"},
    {"GridSample*", "resize by torch.nn.functional.interpolate where the grid is even"},
    {"Scatter*", "concatenate values with torch.cat instead of assigning them"},
};

std::string name_of_node(const OnnxNode& node) {
  return (node.name.empty() && !node.outputs.empty() ? node.outputs[0] : node.name).substr(0, 200);
}

std::string names_text(const std::vector<std::string>& names) {
  const auto shown = std::min(names.size(), kMostNamed);
  return fmt::format("{}: '{}'{}", names.size(),
                     fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), "', '"),
                     shown < names.size() ? fmt::format(" and {} more", names.size() - shown) : "");
}

}  // namespace

OnnxSchema::OnnxSchema(std::string_view inputs, std::string_view attributes) {
  for (std::string_view text : split(inputs, ' ')) {
    SchemaInput input;
    // Suffixes are removed from the end of the notation: "@11-", then "?" or "*".
    read_opsets(text, input);
    input.optional = cut_mark(text, '?');
    input.variadic = cut_mark(text, '*');
    input.name = text;
    inputs_.push_back(std::move(input));
  }
  for (std::string_view text : split(attributes, ' ')) {
    SchemaAttribute attribute;
    read_opsets(text, attribute);
    for (const auto value : split(take_suffix(text, '='), ',')) attribute.allowed.emplace_back(value);
    attribute.unsupported = cut_mark(text, '~');
    attribute.required = cut_mark(text, '!');
    attribute.type = take_suffix(text, ':');
    attribute.name = text;
    attributes_.push_back(std::move(attribute));
  }
}

void OnnxSchema::check(const OnnxNode& node, int opset) const {
  const NodeReader reader(node);
  check_inputs(node, opset);
  std::set<std::string_view> given;
  for (const auto& [name, value] : node.attributes) {
    const SchemaAttribute& attribute = known(node, name, opset);
    reader.check(given.insert(name).second, "attribute '{}' is given twice", name);
    reader.check(!attribute.unsupported, "attribute '{}' is not supported", name);
    check_value(reader, attribute, value);
  }
  for (const auto& attribute : attributes_)
    reader.check(!attribute.required || !attribute.is_in(opset) || given.contains(attribute.name),
                 "attribute '{}' is missing", attribute.name);
}

void OnnxSchema::check_inputs(const OnnxNode& node, int opset) const {
  const NodeReader reader(node);
  std::size_t count = node.inputs.size(), next = 0;
  // Trailing empty names are missing inputs.
  while (count > 0 && node.inputs[count - 1].empty()) --count;
  for (const auto& input : inputs_) {
    if (!input.is_in(opset)) continue;
    reader.check(input.optional || reader.has_input(next), "its input {} ({}) is missing", next, input.name);
    // A variadic input is the last one and takes the rest.
    if (input.variadic) return;
    ++next;
  }
  reader.check(count <= next, "it has {} inputs: {} of opset {} has {} ({})", count, node.op, opset, next,
               names_text(inputs_, opset));
}

const SchemaAttribute& OnnxSchema::known(const OnnxNode& node, const std::string& name, int opset) const {
  // An attribute of another opset gets a message of its own, because the opset of the file may be wrong.
  const SchemaAttribute* other = nullptr;
  for (const auto& attribute : attributes_) {
    if (attribute.name != name) continue;
    if (attribute.is_in(opset)) return attribute;
    other = &attribute;
  }
  const NodeReader reader(node);
  if (other != nullptr)
    reader.fail("attribute '{}' is of {}: the file has opset {}", name,
                opsets_text(other->first, other->last), opset);
  reader.fail("attribute '{}' is unknown: attributes of {} in opset {}: {}", name.substr(0, 80),
              operator_name(node), opset, names_text(attributes_, opset));
}

void check_operator(const OnnxNode& node, int opset) {
  const Operator* found = find_operator(node);
  if (found == nullptr) return;
  const OperatorRow& row = found->row;
  const NodeReader reader(node);
  reader.check(!node.domain.empty() || (opset >= row.first && opset <= row.last),
               "{} is supported in {}: the file has opset {}", row.name, opsets_text(row.first, row.last),
               opset);
  found->schema.check(node, opset);
}

void check_operators(const OnnxModel& model, const std::vector<OnnxNode>& nodes) {
  check_opsets(model);
  MissingNodes all;
  bool failed = false;
  for (const auto& node : nodes) {
    // A file must not contain the nodes that only the reader inserts.
    if (node.domain == kPatternDomain || find_operator(node) == nullptr) {
      failed = failed || node.domain == kPatternDomain;
      all.add(node, operator_name(node));
      continue;
    }
    try {
      check_operator(node, static_cast<int>(model.opset));
    } catch (const ArgumentError& error) {
      failed = true;
      all.add_error(error.what());
    }
  }
  // Unknown operators alone are no error yet: folding or a pattern may replace their nodes.
  if (failed) all.check();
}

std::string way_round(const std::string& what) {
  const auto found =
      std::ranges::find_if(kWays, [&](const WayRound& way) { return wildcard_match(way.pattern, what); });
  return found == std::end(kWays) ? "" : found->way;
}

void MissingNodes::add(const OnnxNode& node, const std::string& what) {
  nodes_[what].push_back(name_of_node(node));
}

void MissingNodes::add_error(std::string message) {
  if (message.starts_with(kFunction)) message.erase(0, kFunction.size());
  errors_.push_back(std::move(message));
}

void MissingNodes::check() const {
  if (nodes_.empty() && errors_.empty()) return;
  std::vector<std::string> list, ways, parts;
  for (const auto& [what, names] : nodes_) {
    list.push_back(fmt::format("{} ({})", what, names_text(names)));
    if (const std::string way = way_round(what); !way.empty())
      ways.push_back(fmt::format("{}: {}", what, way));
  }
  if (!list.empty())
    parts.push_back(fmt::format("these operators are not supported: {}", fmt::join(list, ", ")));
  if (!ways.empty()) parts.push_back(fmt::format("workarounds: {}", fmt::join(ways, "; ")));
  // At most 50 errors: a graph may have thousands of nodes with the same one.
  parts.insert(parts.end(), errors_.begin(),
               errors_.begin() + std::min<std::ptrdiff_t>(std::ssize(errors_), 50));
  throw ArgumentError(fmt::format("{}{}", kFunction, fmt::join(parts, ". ")));
}

}  // namespace fq::detail
