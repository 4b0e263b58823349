#include "fakequant/export/quantized/quantized_model.h"

#include <map>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/quantized.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/compress.h"

namespace fq {
namespace {

constexpr const char* kWhere = "import_quantized";

using Quantizers = std::map<std::string, TensorQuantizer*>;

Quantizers quantizers_by_path(Module& model) {
  Quantizers out;
  for (const auto& [name, quantizer, aliases] : named_quantizers(model)) {
    out.emplace(name, quantizer);
    for (const auto& alias : aliases) out.emplace(alias, quantizer);
  }
  return out;
}

/// Whether the grid is made of the weight: it has no scales to set.
bool follows_weight(const TensorQuantizer& quantizer) {
  const EngineGrid grid = quantizer.settings().engine_grid;
  return grid == EngineGrid::q4_0 || grid == EngineGrid::q8_0;
}

void check_scales(const QuantizedTensor& own, const FileGrid& grid) {
  const auto have = own.spec.scale.to_vector<float>(), want = grid.scale.to_vector<float>();
  for (std::size_t i = 0; i < want.size(); ++i)
    FQ_CHECK(have.at(i) == want[i], kWhere,
             "{}: block {} has the scale {}, which '{}' would make {}: it was made by another quantizer than "
             "ggml's plain one, whose blocks a grid of ours cannot hold",
             grid.origin, i, want[i], grid.quantizer, have[i]);
}

void check_codes(Module& model, const FileGrid& grid) {
  const std::string path = grid.quantizer.substr(0, grid.quantizer.rfind('.'));
  const auto& layer = dynamic_cast<const QuantModule&>(model.at(path));
  const QuantizedTensor own = weight_codes(layer);
  if (follows_weight(*layer.weight_quantizer())) check_scales(own, grid);
  const auto have = code_values(own).to(Layout::row_major).to_vector<float>(),
             want = grid.codes.to_vector<float>();
  for (std::size_t i = 0; i < want.size(); ++i)
    FQ_CHECK(
        have.at(i) == want[i], kWhere,
        "{}: element {} has the code {}, which '{}' would make {}: a grid of ours cannot hold these codes",
        grid.origin, i, want[i], grid.quantizer, have[i]);
}

void set_scale(TensorQuantizer& quantizer, const FileGrid& grid) {
  try {
    quantizer.set_scale(grid.scale);
  } catch (const ArgumentError& error) {
    throw ArgumentError(fmt::format("{} (of {})", error.what(), grid.origin));
  }
}

}  // namespace

void FileQuantization::set_grids(Module& model) const {
  const NoGrad no_grad;
  const Quantizers quantizers = quantizers_by_path(model);
  std::map<const TensorQuantizer*, const FileGrid*> set;
  for (const auto& grid : grids) {
    const auto found = quantizers.find(grid.quantizer);
    FQ_CHECK(found != quantizers.end() && found->second->enabled(), kWhere,
             "{} has a grid for '{}', which is not quantized: no such layer is multiplied by codes",
             grid.origin, grid.quantizer);
    if (follows_weight(*found->second)) continue;
    const auto [known, first] = set.emplace(found->second, &grid);
    if (first)
      set_scale(*found->second, grid);
    else
      FQ_CHECK(
          bitwise_equal(known->second->scale, grid.scale), kWhere,
          "{} and {} have other scales, and '{}' is one quantizer for both: one tensor has one grid here",
          known->second->origin, grid.origin, found->second->name());
  }
  const auto missing = uncalibrated_quantizers(model);
  FQ_CHECK(missing.empty(), kWhere, "the file has no scale for {}", fmt::join(missing, ", "));
  for (const auto& grid : grids)
    if (grid.codes.defined()) check_codes(model, grid);
}

std::shared_ptr<Graph> QuantizedModel::build() const {
  auto graph = floats.build();
  Shape batch{1};
  batch.insert(batch.end(), floats.sample_shape.begin(), floats.sample_shape.end());
  if (quantization.empty()) return graph;
  (void)quantize(*graph, QuantConfig::parse(quantization.config), batch);
  quantization.set_grids(*graph);
  return graph;
}

}  // namespace fq
