#include <algorithm>
#include <numeric>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"
#include "fakequant/layers/quantizer/detail/dead_channels.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/ptq/detail/algorithm_entry.h"
#include "fakequant/train/ptq/detail/chosen_codes.h"
#include "fakequant/train/ptq/detail/float_run.h"

namespace fq::ptq {
namespace {

/// d^T gram d over columns [begin, end) of one row.
double block_error(const float* gram, const float* d, std::int64_t columns, std::int64_t begin,
                   std::int64_t end) {
  double sum = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    float product = 0;
    for (std::int64_t j = begin; j < end; ++j) product += gram[i * columns + j] * d[j];
    sum += double(product) * double(d[i]);
  }
  return sum;
}

/// Errors by range: those of each row's neighbours with one range.
std::vector<double> range_errors(const WeightedLayer& layer, const InputStatistics& statistics,
                                 const std::vector<std::size_t>& ranges, std::size_t count) {
  const Tensor difference = weight_grid(layer).rounding_errors(layer.weight.tensor());
  const auto* d = difference.data<float>();
  const std::int64_t columns = layer.columns();
  std::vector<double> out(count, 0.0);
  for (std::int64_t row = 0; row < layer.rows(); ++row) {
    const auto* gram = statistics.gram[static_cast<std::size_t>(layer.group_of(row))].data<float>();
    const auto* of_row = ranges.data() + row * columns;
    for (std::int64_t begin = 0, end = 0; begin < columns; begin = end) {
      while (end < columns && of_row[end] == of_row[begin]) ++end;
      out[of_row[begin]] += block_error(gram, d + row * columns, columns, begin, end);
    }
  }
  return out;
}

double output_error(const WeightedLayer& layer, const InputStatistics& statistics) {
  const auto errors =
      row_errors(layer, statistics, weight_grid(layer).rounding_errors(layer.weight.tensor()));
  return std::accumulate(errors.begin(), errors.end(), 0.0) / double(errors.size());
}

LayerReport clip(const WeightedLayer& layer, const InputStatistics& statistics,
                 const AwqClipOptions& options) {
  TensorQuantizer& q = *layer.quant->weight_quantizer();
  const Tensor whole = detail::flat_ranges(q.amax());
  const Shape shape = q.amax().shape();
  const auto count = static_cast<std::size_t>(whole.numel());
  const auto ranges = range_indices(layer);
  LayerReport report{layer.path, output_error(layer, statistics), 0};
  Tensor best = whole.clone();
  auto least = range_errors(layer, statistics, ranges, count);
  for (int i = 1; 1 - i * options.step >= options.lowest - 1e-9; ++i) {
    Tensor clipped = whole.clone();
    auto* amax = clipped.mutable_data<float>();
    for (std::size_t r = 0; r < count; ++r) amax[r] *= static_cast<float>(1 - i * options.step);
    q.set_amax(clipped.reshape(shape));
    const auto errors = range_errors(layer, statistics, ranges, count);
    for (std::size_t r = 0; r < count; ++r) {
      if (errors[r] >= least[r]) continue;
      least[r] = errors[r];
      best.mutable_data<float>()[r] = amax[r];
    }
  }
  q.set_amax(best.reshape(shape));
  report.after = output_error(layer, statistics);
  return report;
}

}  // namespace

Report awq_clip(Module& model, DataLoader& data, const AwqClipOptions& options) {
  FQ_CHECK(options.lowest > 0 && options.lowest <= 1 && options.step >= 1e-3, "awq_clip",
           "shares down to {} in steps of {}: use above 0 to 1, and 0.001 or more", options.lowest,
           options.step);
  Report report;
  const auto layers = codable_layers(model, data, "awq_clip", report);
  const auto statistics =
      input_statistics(model, data, layers, {.samples = options.samples, .ranks = options.ranks}, "awq_clip");
  for (const auto& layer : layers) {
    const auto& descriptor = layer.quant->weight_quantizer()->descriptor();
    if (descriptor.amax().defined())
      report.skipped.push_back({layer.path, "has ranges that its descriptor gives"});
    else if (descriptor.block_sizes().scale_bits)
      report.skipped.push_back({layer.path, "has scales of few bits"});
    else
      report.layers.push_back(clip(layer, statistics.at(layer.path), options));
  }
  floor_dead_channels(model);
  return report;
}

AlgorithmEntry awq_clip_entry() {
  return {.options = {{"lowest", "min_clip_ratio"}, {"step", "shrink_step"}},
          .after = [](Module& model, DataLoader& data, const AlgorithmOptions& given) {
            AwqClipOptions options{.samples = given.samples(), .ranks = given.ranks()};
            options.lowest = given.number("lowest", options.lowest);
            options.step = given.number("step", options.step);
            return awq_clip(model, data, options);
          }};
}

}  // namespace fq::ptq
