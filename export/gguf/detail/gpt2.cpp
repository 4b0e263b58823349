#include "fakequant/export/gguf/detail/gpt2.h"

#include <algorithm>
#include <map>
#include <set>

#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/modules/attention.h"

namespace fq::detail {
namespace {

/// A layer of the model: what flows into it from others, and what it gives.
struct Part {
  std::string name, type;
  std::set<int> inputs;
  int output = -1;
};

/// The layer that a path is in, graphs within the network being no layers.
std::string layer_of(Module& model, const std::string& path) {
  for (auto end = path.find('.'); end != std::string::npos; end = path.find('.', end + 1)) {
    std::string name = path.substr(0, end);
    if (const std::string type = model.at(name).type(); type != "graph" && type != "sequential") return name;
  }
  return path;
}

std::vector<Part> parts_of(Module& model, const Shape& input_shape) {
  const TraceGraph graph = trace(model, input_shape);
  std::vector<Part> out;
  std::map<int, std::string> made;  // values by the child that made them
  for (const auto& node : graph.nodes) {
    const std::string name = layer_of(model, node.path);
    if (out.empty() || out.back().name != name) {
      if (name.empty() || std::ranges::find(out, name, &Part::name) != out.end()) return {};
      out.push_back({name, model.at(name).type(), {}, -1});
    }
    Part& part = out.back();
    for (const int value : node.inputs) {
      const bool input = std::ranges::find(graph.inputs, value) != graph.inputs.end();
      const auto known = made.find(value);
      if (input || (known != made.end() && known->second != name)) part.inputs.insert(value);
    }
    made[node.output] = name;
    part.output = node.output;
  }
  return out;
}

/// Takes parts in their order, as long as they are those that are expected.
class Matching {
 public:
  explicit Matching(std::vector<Part> parts) : parts_(std::move(parts)) {}

  /// The next part of that kind, which reads just these values; null where it is another.
  const Part* take(std::string_view type, const std::set<int>& inputs) {
    if (at_ >= parts_.size() || parts_[at_].inputs != inputs) return nullptr;
    const std::string& found = parts_[at_].type;
    if (found != type && found != "quant_" + std::string(type)) return nullptr;
    return &parts_[at_++];
  }
  const Part* first(std::string_view type) {
    return at_ == 0 && !parts_.empty() ? take(type, parts_[0].inputs) : nullptr;
  }
  [[nodiscard]] bool done() const { return at_ == parts_.size(); }

 private:
  std::vector<Part> parts_;
  std::size_t at_ = 0;
};

/// The block that reads `x`, which becomes its output.
std::optional<Gpt2Block> block_of(Matching& parts, int& x, const Part* norm) {
  const Part* attention = parts.take("attention", {norm->output});
  const Part* sum = attention ? parts.take("add", {attention->output, x}) : nullptr;
  const Part* second = sum ? parts.take("layer_norm", {sum->output}) : nullptr;
  const Part* up = second ? parts.take("linear", {second->output}) : nullptr;
  const Part* gelu = up ? parts.take("gelu", {up->output}) : nullptr;
  const Part* down = gelu ? parts.take("linear", {gelu->output}) : nullptr;
  const Part* last = down ? parts.take("add", {down->output, sum->output}) : nullptr;
  if (last == nullptr) return std::nullopt;
  x = last->output;
  return Gpt2Block{norm->name, attention->name, second->name, up->name, down->name};
}

Shape shape_of(const Module& model, const std::string& name) {
  for (const auto& [path, parameter] : model.named_parameters())
    if (path == name) return parameter.shape();
  return {};
}

/// With the sizes; none where gpt2 has not what an attention of ours can be.
std::optional<Gpt2> sized(Gpt2 found, Module& model) {
  for (const auto& block : found.blocks) {
    const auto* attention = dynamic_cast<const Attention*>(&model.at(block.attention));
    if (attention == nullptr) return std::nullopt;
    const AttentionOptions& o = attention->options();
    const bool plain = o.causal && !o.rotary && o.bias && *o.out_bias && o.qk_norm == 0 &&
                       o.kv_heads == o.heads && o.heads * o.head_size == o.width;
    if (!plain || (found.heads != 0 && found.heads != o.heads)) return std::nullopt;
    found.heads = o.heads;
    found.width = o.width;
    found.feed = shape_of(model, block.up + ".weight").at(0);
    for (const auto& layer : {block.up, block.down})
      if (shape_of(model, layer + ".bias").empty()) return std::nullopt;
  }
  found.context = shape_of(model, found.positions + ".weight").at(0);
  found.vocabulary = shape_of(model, found.tokens + ".weight").at(0);
  if (!shape_of(model, found.head + ".bias").empty()) return std::nullopt;
  return found;
}

}  // namespace

std::optional<Gpt2> gpt2_of(Module& model, const Shape& input_shape) {
  Matching parts(parts_of(model, input_shape));
  const Part* tokens = parts.first("embedding");
  const Part* positions = tokens ? parts.take("positions", {tokens->output}) : nullptr;
  if (positions == nullptr) return std::nullopt;
  Gpt2 out{tokens->name, positions->name, {}, {}, {}};
  int x = positions->output;
  for (;;) {
    const Part* norm = parts.take("layer_norm", {x});
    if (norm == nullptr) return std::nullopt;
    if (const Part* head = parts.take("linear", {norm->output})) {
      (void)parts.take("transpose", {head->output});
      out.norm = norm->name;
      out.head = head->name;
      break;
    }
    const auto block = block_of(parts, x, norm);
    if (!block) return std::nullopt;
    out.blocks.push_back(*block);
  }
  return parts.done() && !out.blocks.empty() ? sized(std::move(out), model) : std::nullopt;
}

}  // namespace fq::detail
