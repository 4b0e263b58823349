#include "fakequant/export/quantized/quantized_model.h"

#include <cmath>
#include <map>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/quantized.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/layers/quantizer/detail/ggml_scheme.h"
#include "fakequant/layers/quantizer/detail/weight_codes.h"

namespace fq {
namespace {

constexpr const char* kImportQuantized = "import_quantized";

using Quantizers = std::map<std::string, TensorQuantizer*>;

Quantizers quantizers_by_path(Module& model) {
  Quantizers out;
  for (const auto& [name, quantizer, aliases] : named_quantizers(model)) {
    out.emplace(name, quantizer);
    for (const auto& alias : aliases) out.emplace(alias, quantizer);
  }
  return out;
}

/// Whether the grid is computed from the rounded values, so that there are no scales to set.
bool is_computed_from_values(const TensorQuantizer& quantizer) {
  return detail::ggml_scheme(quantizer.params()) != nullptr || quantizer.descriptor().has_dynamic_blocks();
}

/// Keeps the steps of ggml's files, which an importance matrix may have chosen.
void set_ggml_steps(Module& model, const FileGrid& grid, TensorQuantizer& quantizer) {
  const std::string path = grid.quantizer.substr(0, grid.quantizer.rfind('.'));
  const Variable weight = dynamic_cast<const QuantModule&>(model.at(path)).quantized_weight();
  quantizer.weight_codes().set_extreme_codes(
      detail::file_extreme_codes(weight.tensor().to(Layout::row_major), grid.codes.to(Layout::row_major),
                                 detail::ggml_scheme(quantizer.params())->rounding()));
}

// Scales are compared for equality: they must follow from the values, as in the next training step.
void check_scales(const QuantizedTensor& own, const FileGrid& grid) {
  const auto have = own.grid.scale.to_vector<float>(), want = grid.scale.to_vector<float>();
  for (std::size_t i = 0; i < want.size(); ++i)
    FQ_CHECK(have.at(i) == want[i], kImportQuantized,
             "{}: block {} has the scale {}, but '{}' computes {} from its values: scales of this file are "
             "not supported",
             grid.origin, i, want[i], grid.quantizer, have[i]);
}

void check_codes(Module& model, const FileGrid& grid) {
  const std::string path = grid.quantizer.substr(0, grid.quantizer.rfind('.'));
  const auto& layer = dynamic_cast<const QuantModule&>(model.at(path));
  const QuantizedTensor own = weight_codes(layer);
  if (is_computed_from_values(*layer.weight_quantizer())) check_scales(own, grid);
  const auto have = code_values(own).to(Layout::row_major).to_vector<float>(),
             want = grid.codes.to_vector<float>();
  for (std::size_t i = 0; i < want.size(); ++i)
    FQ_CHECK(have.at(i) == want[i], kImportQuantized,
             "{}: element {} has the code {}, but '{}' computes {}: these codes are not supported",
             grid.origin, i, want[i], grid.quantizer, have[i]);
}

/// Returns the range whose scales are multiples of a unit: fl(range / fl(448 * bound)) gives the unit again.
float range_of_unit(float unit, const Format& format) {
  const float bound = 448.0f * format.bound();
  float range = unit * bound;
  // unit * bound is rounded, so the quotient may miss `unit` by an ulp. The neighbours of `range` are tried.
  for (int i = 0; i < 2 && range / bound > unit; ++i) range = std::nextafter(range, 0.0f);
  for (int i = 0; i < 2 && range / bound < unit; ++i) range = std::nextafter(range, INFINITY);
  FQ_CHECK(range / bound == unit, kImportQuantized, "no range has scales that are multiples of {}", unit);
  return range;
}

void set_scale(TensorQuantizer& quantizer, const FileGrid& grid) {
  try {
    if (grid.unit > 0)
      quantizer.set_amax(Tensor::scalar(range_of_unit(grid.unit, quantizer.descriptor().format())));
    else
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
    FQ_CHECK(found != quantizers.end() && found->second->enabled(), kImportQuantized,
             "{} has a grid for '{}', which is not quantized: this layer type has no quantized form",
             grid.origin, grid.quantizer);
    if (detail::ggml_scheme(found->second->params()) != nullptr && grid.codes.defined())
      set_ggml_steps(model, grid, *found->second);
    if (is_computed_from_values(*found->second) && grid.unit == 0) continue;
    // Layers that share a quantizer must have the same scale in the file.
    const auto [known, first] = set.emplace(found->second, &grid);
    if (first)
      set_scale(*found->second, grid);
    else
      FQ_CHECK(known->second->unit == grid.unit &&
                   (grid.unit > 0 || bitwise_equal(known->second->scale, grid.scale)),
               kImportQuantized, "{} and {} have different scales, but share the quantizer '{}'",
               known->second->origin, grid.origin, found->second->name());
  }
  const auto missing = uncalibrated_quantizers(model);
  FQ_CHECK(missing.empty(), kImportQuantized, "the file has no scale for {}", fmt::join(missing, ", "));
  for (const auto& grid : grids)
    // Codes can be computed only when all ranges are set.
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
