#include "fakequant/layers/detail/float_products.h"

#include <algorithm>
#include <map>

#include <fmt/ranges.h>

#include "fakequant/core/log.h"
#include "fakequant/layers/model/float_operators.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/layers/quantizer/detail/early_grids.h"

namespace fq::detail {
namespace {

/// Returns the formats of the codes that each module dequantizes, by module path.
std::map<std::string, std::vector<std::string>> dequantized_formats(const TraceGraph& graph) {
  std::map<std::string, std::vector<std::string>> out;
  for (const auto& node : graph.nodes) {
    // A product of floats dequantizes both operands, which the trace records under the module's path.
    if (node.op != "dequantize") continue;
    const auto& made = graph.nodes[static_cast<std::size_t>(graph.input(node, 0).producer)];
    if (made.op == "quantize") out[node.path].push_back(made.attribute<std::string>("format"));
  }
  return out;
}

/// Whether a layer of the model multiplies codes that are bytes.
bool has_byte_layers(Module& model) {
  const auto uses_byte_codes = [](const TensorQuantizer& q) {
    return q.enabled() && has_byte_codes(q.descriptor().format());
  };
  return std::ranges::any_of(model.named_modules(), [&](const auto& entry) {
    const auto* quant = dynamic_cast<const QuantModule*>(entry.second);
    return quant != nullptr && quant->weight_quantizer() != nullptr && !quant->input_quantizers().empty() &&
           uses_byte_codes(*quant->weight_quantizer()) && uses_byte_codes(*quant->input_quantizers()[0]);
  });
}

}  // namespace

std::vector<std::string> float_products(Module& model, const TraceGraph& graph) {
  auto formats = dequantized_formats(graph);
  std::vector<std::string> out;
  for (const auto& [path, module] : model.named_modules()) {
    const auto* quant = dynamic_cast<const QuantModule*>(module);
    const auto& both = formats[path];
    // One dequantized operand is a weight-only layer, which multiplies floats by intent.
    if (quant == nullptr || quant->weight_quantizer() == nullptr || both.size() < 2) continue;
    out.push_back(fmt::format(
        "'{}' multiplies dequantized floats: no engine multiplies codes of {} with such scales and formats",
        path, fmt::join(both, " and ")));
  }
  return out;
}

void warn_float_operators(Module& model, const Shape& input_shape, Target target) {
  if (!has_byte_layers(model)) return;
  const auto floats = float_operators(model, input_shape, target);
  if (floats.empty()) return;
  log(LogLevel::warning,
      fmt::format("ONNX Runtime computes {} in floats, where codes may differ by one near a tie: {}",
                  floats.size() == 1 ? "an operator" : fmt::format("{} operators", floats.size()),
                  describe(floats)));
}

}  // namespace fq::detail
