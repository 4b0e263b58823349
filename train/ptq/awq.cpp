#include <algorithm>
#include <cmath>
#include <numeric>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/quantizer/detail/block_ranges.h"
#include "fakequant/layers/quantizer/detail/dead_channels.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"
#include "fakequant/train/calibration/detail/calibration_targets.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/ptq/detail/algorithm_entry.h"
#include "fakequant/train/ptq/detail/channel_scaling.h"
#include "fakequant/train/ptq/detail/chosen_codes.h"
#include "fakequant/train/ptq/detail/float_run.h"
#include "fakequant/train/ptq/detail/input_statistics.h"

namespace fq::ptq {
namespace {

// Returns a quantizer with the settings of `original` and ranges for `weight`, by the same calib_method.
std::shared_ptr<TensorQuantizer> calibrated_copy(const TensorQuantizer& original, const Tensor& weight) {
  QuantParams params;
  params.name = original.name();
  params.descriptor = original.descriptor();
  params.arithmetic = original.params().arithmetic;
  params.enabled = original.params().enabled;
  params.zero_point = original.params().zero_point;
  params.pow2 = original.params().pow2;
  auto copy = std::make_shared<TensorQuantizer>(std::move(params));
  if (!original.params().enabled || !original.descriptor().needs_amax() ||
      original.descriptor().amax().defined())
    return copy;
  detail::collect_whole(*copy, weight);
  copy->load_calibrated_amax();
  return copy;
}

using Statistics = std::map<std::string, InputStatistics>;

/// Returns `weight` quantized with ranges of its own, by the calib_method of the descriptor. A sequence
/// quantizes part by part. The quantizer does not change.
Tensor trial_weight(TensorQuantizer& quantizer, const Tensor& weight) {
  const NoGrad no_grad;
  Variable values(weight);
  for (const TensorQuantizer* part : quantizer_parts(quantizer))
    values = calibrated_copy(*part, weight)->weight(values);
  return values.tensor();
}

std::vector<float> mean_magnitudes(const InputStatistics& statistics) {
  std::vector<float> out;
  for (const double sum : statistics.magnitudes)
    out.push_back(static_cast<float>(sum / double(statistics.values)));
  return out;
}

/// Returns s for each channel, and 1 for channels that are always 0.
std::vector<float> channel_factors(const std::vector<float>& magnitudes, double alpha) {
  double least = 0, most = 0;
  std::vector<float> out(magnitudes.size(), 1.0f);
  for (const float m : magnitudes) {
    if (m == 0.0f) continue;
    most = std::max(most, double(m));
    least = least == 0 ? double(m) : std::min(least, double(m));
  }
  if (least == 0) return out;
  // Division by sqrt(largest * smallest) centres the factors around 1, as in the authors' code
  // (auto_scale.py).
  const double middle = std::sqrt(std::pow(most, alpha) * std::pow(least, alpha));
  for (std::size_t c = 0; c < out.size(); ++c)
    if (magnitudes[c] > 0.0f) out[c] = static_cast<float>(std::pow(double(magnitudes[c]), alpha) / middle);
  return out;
}

/// Returns the mean squared error of an output, with weights that are scaled by `factors` and quantized.
double scaling_error(const WeightedLayer& layer, const InputStatistics& statistics,
                     const std::vector<float>& factors) {
  const Tensor weight = layer.weight.tensor();
  WeightedLayer scaled = layer;
  scaled.weight = Variable(weight.clone());
  scale_inputs(scaled, factors);
  scaled.weight = Variable(trial_weight(*layer.quant->weight_quantizer(), scaled.weight.tensor()).clone());
  // After quantization, the weights are divided by the factors again: the difference is then in the units of
  // the original weight and of the unscaled inputs, for which `gram` was collected.
  std::vector<float> back = factors;
  for (float& f : back) f = 1.0f / f;
  scale_inputs(scaled, back);
  Tensor difference = scaled.weight.tensor().clone();
  auto* d = difference.mutable_data<float>();
  const auto* w = weight.data<float>();
  for (std::int64_t i = 0; i < difference.numel(); ++i) d[i] -= w[i];
  const auto errors = row_errors(layer, statistics, difference);
  return std::accumulate(errors.begin(), errors.end(), 0.0) / double(errors.size());
}

// One error per reader of the group.
std::vector<double> scaling_errors(const ScaleGroup& group, const Statistics& statistics,
                                   const std::vector<float>& factors) {
  std::vector<double> out;
  for (const auto& reader : group.readers)
    out.push_back(scaling_error(reader, statistics.at(reader.path), reader_factors(group, reader, factors)));
  return out;
}

void search(const ScaleGroup& group, const Statistics& statistics, double step, Report& report) {
  std::vector<std::vector<float>> inputs;
  for (const auto& reader : group.readers) inputs.push_back(mean_magnitudes(statistics.at(reader.path)));
  const auto magnitudes = largest_of_readers(group, inputs);
  std::vector<float> best(magnitudes.size(), 1.0f);
  const auto before = scaling_errors(group, statistics, best);
  auto after = before;
  // Readers of one input share the factors: the sum of their errors decides.
  const auto total = [](const std::vector<double>& e) { return std::accumulate(e.begin(), e.end(), 0.0); };
  // 1e-9 allows for the rounding error of i * step.
  for (int i = 1; i * step <= 1 + 1e-9; ++i) {
    const auto factors = channel_factors(magnitudes, i * step);
    const auto errors = scaling_errors(group, statistics, factors);
    // Equal errors keep the smaller alpha, which changes the weights less.
    if (total(errors) >= total(after)) continue;
    best = factors;
    after = errors;
  }
  scale_channels(group, best);
  for (std::size_t i = 0; i < before.size(); ++i)
    report.layers.push_back({group.readers[i].path, before[i], after[i]});
}

bool has_quantized_weights(const WeightedLayer& layer) {
  return layer.quant != nullptr && layer.quant->weight_quantizer()->enabled();
}

/// Returns d^T gram d over columns [begin, end) of one row.
double block_error(const float* gram, const float* d, std::int64_t columns, std::int64_t begin,
                   std::int64_t end) {
  double sum = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    // Only the columns of the range interact here: cross terms with other ranges are neglected, so that each
    // range can be chosen by itself.
    float product = 0;
    for (std::int64_t j = begin; j < end; ++j) product += gram[i * columns + j] * d[j];
    sum += double(product) * double(d[i]);
  }
  return sum;
}

/// Returns the output error by range: the error of all columns of a row that share the range.
std::vector<double> range_errors(const WeightedLayer& layer, const InputStatistics& statistics,
                                 const std::vector<std::size_t>& ranges, std::size_t count) {
  const Tensor difference = weight_grid(layer).rounding_errors(layer.weight.tensor());
  const auto* d = difference.data<float>();
  const std::int64_t columns = layer.columns();
  std::vector<double> out(count, 0.0);
  for (std::int64_t row = 0; row < layer.rows(); ++row) {
    const auto* gram = statistics.gram[static_cast<std::size_t>(layer.row_group(row))].data<float>();
    const auto* of_row = ranges.data() + row * columns;
    for (std::int64_t begin = 0, end = 0; begin < columns; begin = end) {
      // Columns of one range are neighbours: a channel is one run, a block is a part of a row.
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
  // All ranges are tried at once with the same share; each keeps its own best one.
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

Report awq_lite(Module& model, DataLoader& data, const AwqLiteOptions& options) {
  FQ_CHECK(options.alpha_step >= 1e-3 && options.alpha_step <= 1, "awq_lite",
           "alpha_step is {}: use 0.001 to 1", options.alpha_step);
  check_uncalibrated(model, "awq_lite");
  const TraceGraph graph = float_graph(model, loader_input_shape(data));
  const ScaleGroups found = scale_groups(model, graph);
  const auto statistics = input_statistics(model, data, weighted_layers(model, graph).layers,
                                           {.samples = options.samples, .ranks = options.ranks}, "awq_lite");
  Report report{.layers = {}, .skipped = found.skipped};
  for (const auto& group : found.groups) {
    // Float weights gain nothing from a factor, but they would have to take part in it.
    if (std::ranges::all_of(group.readers, has_quantized_weights)) {
      search(group, statistics, options.alpha_step, report);
      continue;
    }
    for (const auto& reader : group.readers)
      report.skipped.push_back({reader.path, "shares its input with a layer whose weights are float"});
  }
  return report;
}

AlgorithmEntry awq_lite_entry() {
  return {.options = {{"alpha_step"}},
          .before = [](Module& model, DataLoader& data, const AlgorithmOptions& given) {
            AwqLiteOptions options{.samples = given.samples(), .ranks = given.ranks()};
            options.alpha_step = given.number("alpha_step", options.alpha_step);
            return awq_lite(model, data, options);
          }};
}

Report awq_clip(Module& model, DataLoader& data, const AwqClipOptions& options) {
  FQ_CHECK(options.lowest > 0 && options.lowest <= 1 && options.step >= 1e-3, "awq_clip",
           "lowest is {} (use above 0 to 1), step is {} (use 0.001 or more)", options.lowest, options.step);
  Report report;
  const auto layers = codable_layers(model, data, "awq_clip", report);
  const auto statistics =
      input_statistics(model, data, layers, {.samples = options.samples, .ranks = options.ranks}, "awq_clip");
  for (const auto& layer : layers) {
    const auto& descriptor = layer.quant->weight_quantizer()->descriptor();
    if (descriptor.amax().defined())
      report.skipped.push_back({layer.path, "has ranges that its descriptor gives"});
    // A rounded scale cannot take any share of a range.
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

// ModelOpt's awq_full: scaling before calibration, clipping after it.
AlgorithmEntry awq_full_entry() {
  AlgorithmEntry both = awq_lite_entry();
  const AlgorithmEntry clip = awq_clip_entry();
  both.options.insert(both.options.end(), clip.options.begin(), clip.options.end());
  both.after = clip.after;
  return both;
}

}  // namespace fq::ptq
