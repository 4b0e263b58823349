#include <limits>

#include "fakequant/export/onnx/reader/patterns/graph_view.h"

namespace fq::detail {
namespace {

bool is_bias(const Tensor* bias, std::int64_t columns) {
  return bias != nullptr && bias->numel() == columns && bias->rank() >= 1 && bias->dim(-1) == columns;
}

/// Returns the zeros that a Pad adds to an image, [before.., after..] along its axes after batch and
/// channels.
std::optional<std::vector<std::int64_t>> zeros_around(const GraphView& graph, const OnnxNode& pad) {
  const auto* mode = pad.attribute("mode");
  const auto* text = mode != nullptr ? std::get_if<std::string>(mode) : nullptr;
  if (mode != nullptr && (text == nullptr || *text != "constant")) return std::nullopt;
  const bool has_value = pad.inputs.size() > 2 && !pad.inputs[2].empty();
  if (pad.inputs.size() > 3 || (has_value && graph.number(pad.inputs[2]) != 0.0)) return std::nullopt;
  const auto pads = pad.inputs.size() > 1 ? graph.integers(pad.inputs[1]) : std::nullopt;
  if (!pads || pads->size() < 6 || pads->size() % 2 != 0) return std::nullopt;
  std::vector<std::int64_t> out;
  const std::size_t rank = pads->size() / 2;
  for (std::size_t i = 0; i < pads->size(); ++i) {
    if ((*pads)[i] < 0 || (*pads)[i] > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
    if (i % rank >= 2)
      out.push_back((*pads)[i]);
    else if ((*pads)[i] != 0)
      return std::nullopt;
  }
  return out;
}

const OnnxNode* find_pad(const GraphView& graph, const std::string& name) {
  for (const std::size_t inputs : {2, 3})
    if (const auto* pad = graph.maker(name, "Pad", inputs)) return pad;
  return nullptr;
}

/// Returns the pads of a convolution. Returns no value if auto_pad determines them.
std::optional<std::vector<std::int64_t>> own_pads(const OnnxNode& conv, std::size_t count) {
  const auto* mode = conv.attribute("auto_pad");
  const auto* text = mode != nullptr ? std::get_if<std::string>(mode) : nullptr;
  if (mode != nullptr && (text == nullptr || (*text != "NOTSET" && *text != "VALID"))) return std::nullopt;
  const auto* pads = conv.attribute("pads");
  if (pads == nullptr) return std::vector<std::int64_t>(count, 0);
  const auto* list = std::get_if<std::vector<std::int64_t>>(pads);
  return list != nullptr && list->size() == count ? std::optional(*list) : std::nullopt;
}

}  // namespace

std::optional<OnnxNode> find_linear(const GraphView& graph, const OnnxNode& last) {
  if (last.op != "Add" || last.inputs.size() != 2) return std::nullopt;
  for (const std::size_t i : {0, 1}) {
    const auto* product = graph.maker(last.inputs[i], "MatMul", 2);
    const auto* weight = product != nullptr ? graph.constant(product->inputs[1]) : nullptr;
    if (weight == nullptr || weight->rank() != 2 ||
        !is_bias(graph.constant(last.inputs[1 - i]), weight->dim(1)))
      continue;
    auto node = pattern_node(last, "MatMul", {product->inputs[0], product->inputs[1], last.inputs[1 - i]});
    // The name of the MatMul has the path of the module. The Add often has a generated name.
    node.name = product->name;
    return node;
  }
  return std::nullopt;
}

std::optional<OnnxNode> find_padded_conv(const GraphView& graph, const OnnxNode& last) {
  if (last.op != "Conv" || last.inputs.empty()) return std::nullopt;
  const auto* pad = find_pad(graph, last.inputs[0]);
  const auto around = pad != nullptr ? zeros_around(graph, *pad) : std::nullopt;
  auto pads = around ? own_pads(last, around->size()) : std::nullopt;
  if (!pads) return std::nullopt;
  // Zeros of the Pad and pads of the convolution are the same, so their numbers add.
  for (std::size_t i = 0; i < pads->size(); ++i)
    if (__builtin_add_overflow((*pads)[i], (*around)[i], &(*pads)[i])) return std::nullopt;
  OnnxNode node = last;
  node.inputs[0] = pad->inputs[0];
  std::erase_if(node.attributes,
                [](const auto& entry) { return entry.first == "pads" || entry.first == "auto_pad"; });
  node.attributes.emplace_back("pads", *pads);
  return node;
}

}  // namespace fq::detail
