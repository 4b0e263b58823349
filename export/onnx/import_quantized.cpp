#include "fakequant/export/onnx/import_quantized.h"

#include <algorithm>

#include "fakequant/export/onnx/reader/graph/graph_import.h"
#include "fakequant/export/onnx/reader/live_nodes.h"
#include "fakequant/export/onnx/reader/onnx_schema.h"
#include "fakequant/export/onnx/reader/quantized/convolution_pairs.h"
#include "fakequant/export/onnx/reader/quantized/placed_grids.h"

namespace fq {
namespace {

/// Codes of activations that are signed with zero point 0, beside biases of floats.
bool is_for_tensorrt(const detail::Unquantized& file) {
  return !file.integer_bias && !file.grids.empty() && std::ranges::all_of(file.grids, [](const auto& grid) {
    return grid.type == DType::i8 && grid.zero_point == 0;
  });
}

}  // namespace

bool is_quantized(const OnnxModel& model) { return detail::has_grids(model); }

QuantizedModel import_quantized_onnx(const OnnxModel& model, const ImportOptions& options) {
  detail::check_operators(model, detail::live_nodes(model.nodes, detail::output_of(model, options.output)));
  const detail::Unquantized file = detail::unquantized(detail::with_convolution_pairs(model));
  ImportedModel floats = detail::import_checked(file.floats, options);
  const detail::UnmarkedNodes nodes = detail::unmarked(floats.spec.nodes(), file);
  floats.spec = ModelSpec(floats.spec.name(), nodes.nodes);
  auto placed = detail::placed_grids(floats, nodes, file);
  const nlohmann::ordered_json config{{"target", is_for_tensorrt(file) ? "tensorrt" : "ort"},
                                      {"rules", std::move(placed.rules)}};
  return {std::move(floats), {config.dump(), std::move(placed.grids)}};
}

}  // namespace fq
