#include <algorithm>
#include <cmath>
#include <numeric>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/ptq/detail/algorithm_entry.h"
#include "fakequant/train/ptq/detail/channel_scaling.h"
#include "fakequant/train/ptq/detail/float_run.h"
#include "fakequant/train/ptq/detail/input_statistics.h"
#include "fakequant/train/ptq/detail/trial_quantizer.h"

namespace fq::ptq {
namespace {

using Statistics = std::map<std::string, InputStatistics>;

std::vector<float> mean_magnitudes(const InputStatistics& statistics) {
  std::vector<float> out;
  for (const double sum : statistics.magnitudes)
    out.push_back(static_cast<float>(sum / double(statistics.values)));
  return out;
}

/// s of each channel; 1 of those that are always 0.
std::vector<float> factors_at(const std::vector<float>& magnitudes, double alpha) {
  double least = 0, most = 0;
  std::vector<float> out(magnitudes.size(), 1.0f);
  for (const float m : magnitudes) {
    if (m == 0.0f) continue;
    most = std::max(most, double(m));
    least = least == 0 ? double(m) : std::min(least, double(m));
  }
  if (least == 0) return out;
  const double middle = std::sqrt(std::pow(most, alpha) * std::pow(least, alpha));
  for (std::size_t c = 0; c < out.size(); ++c)
    if (magnitudes[c] > 0.0f) out[c] = static_cast<float>(std::pow(double(magnitudes[c]), alpha) / middle);
  return out;
}

/// Mean squared error of an output with the weights quantized behind those factors.
double error_with(const WeightedLayer& layer, const InputStatistics& statistics,
                  const std::vector<float>& factors) {
  const Tensor weight = layer.weight.tensor();
  WeightedLayer scaled = layer;
  scaled.weight = Variable(weight.clone());
  scale_inputs(scaled, factors);
  scaled.weight = Variable(trial_weight(*layer.quant->weight_quantizer(), scaled.weight.tensor()).clone());
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

std::vector<double> errors_with(const ScaleGroup& group, const Statistics& statistics,
                                const std::vector<float>& factors) {
  std::vector<double> out;
  for (const auto& reader : group.readers)
    out.push_back(error_with(reader, statistics.at(reader.path), factors_of(group, reader, factors)));
  return out;
}

void search(const ScaleGroup& group, const Statistics& statistics, double step, Report& report) {
  std::vector<std::vector<float>> inputs;
  for (const auto& reader : group.readers) inputs.push_back(mean_magnitudes(statistics.at(reader.path)));
  const auto magnitudes = largest_of_readers(group, inputs);
  std::vector<float> best(magnitudes.size(), 1.0f);
  const auto before = errors_with(group, statistics, best);
  auto after = before;
  const auto total = [](const std::vector<double>& e) { return std::accumulate(e.begin(), e.end(), 0.0); };
  for (int i = 1; i * step <= 1 + 1e-9; ++i) {
    const auto factors = factors_at(magnitudes, i * step);
    const auto errors = errors_with(group, statistics, factors);
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

}  // namespace

Report awq_lite(Module& model, DataLoader& data, const AwqLiteOptions& options) {
  FQ_CHECK(options.alpha_step >= 1e-3 && options.alpha_step <= 1, "awq_lite",
           "a step of {} for alpha: use 0.001 to 1", options.alpha_step);
  check_uncalibrated(model, "awq_lite");
  const TraceGraph graph = float_graph(model, input_shape_of(data));
  const ScaleGroups found = scale_groups(model, graph);
  const auto statistics = input_statistics(model, data, weighted_layers(model, graph).layers,
                                           {.samples = options.samples, .ranks = options.ranks}, "awq_lite");
  Report report{.layers = {}, .skipped = found.skipped};
  for (const auto& group : found.groups) {
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

}  // namespace fq::ptq
