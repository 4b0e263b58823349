#include "fakequant/train/ptq/detail/chosen_codes.h"

#include <algorithm>
#include <numeric>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/ptq/detail/float_run.h"
#include "fakequant/train/ranks/detail/collectives.h"

namespace fq::ptq {
namespace {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / double(values.size());
}

Tensor difference(const Tensor& chosen, const Tensor& weight) {
  Tensor out = chosen.clone();
  auto* d = out.mutable_data<float>();
  const auto* w = weight.data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) d[i] -= w[i];
  return out;
}

/// Sets the weight and returns its output error before and after.
LayerReport set_weight(const WeightedLayer& layer, const WeightGrid& grid, const InputStatistics& statistics,
                       const Tensor& chosen) {
  const Tensor weight = layer.weight.tensor().clone(), nearest = grid.rounding_errors(weight);
  const auto before = row_errors(layer, statistics, nearest);
  auto after = row_errors(layer, statistics, difference(chosen, weight));
  Variable parameter = layer.weight;
  auto* to = parameter.mutable_tensor().mutable_data<float>();
  const auto *w = weight.data<float>(), *c = chosen.data<float>();
  const auto columns = static_cast<std::size_t>(layer.columns());
  for (std::size_t row = 0; row < after.size(); ++row) {
    // Rows are independent, so that each keeps the better of both results. NaN keeps the nearest codes.
    const bool better = after[row] < before[row];
    for (std::size_t i = row * columns; i < (row + 1) * columns; ++i)
      // The nearest codes are written as values, too: the calibrated grid then reproduces them.
      to[i] = better ? c[i] : grid.value(i, grid.code(i, w[i]));
    if (!better) after[row] = before[row];
  }
  return {layer.path, mean(before), mean(after)};
}

/// Exchanges weights and errors: rank r has processed the layers r, r + size, r + 2 size, ..
void exchange(Communicator& ranks, const std::vector<WeightedLayer>& layers, Report& report) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto owner = i % static_cast<std::size_t>(ranks.size());
    StateDict own;
    if (owner == static_cast<std::size_t>(ranks.rank())) {
      own.set("weight", layers[i].weight.tensor());
      own.set("errors", Tensor::from({report.layers[i].before, report.layers[i].after}, {2}));
    }
    // All ranks must call gather_states for every layer; only the owner has content.
    const StateDict state = fq::detail::gather_states(ranks, own)[owner];
    Variable weight = layers[i].weight;
    weight.mutable_tensor().copy_from(state.at("weight"));
    const auto errors = state.at("errors").to_vector<double>();
    report.layers[i] = {layers[i].path, errors[0], errors[1]};
  }
}

}  // namespace

std::vector<WeightedLayer> codable_layers(Module& model, const DataLoader& data, const std::string& function,
                                          Report& report, ReasonAgainst against) {
  WeightedLayers found = weighted_layers(model, float_graph(model, loader_input_shape(data)));
  report.skipped.insert(report.skipped.end(), found.skipped.begin(), found.skipped.end());
  std::erase_if(found.layers, [&](const WeightedLayer& layer) {
    const std::string reason = against(layer);
    if (!reason.empty()) report.skipped.push_back({layer.path, reason});
    return !reason.empty();
  });
  for (const auto& layer : found.layers) {
    const TensorQuantizer& q = *layer.quant->weight_quantizer();
    FQ_CHECK(!q.descriptor().needs_amax() || q.amax().defined(), function,
             "'{}.weight_quantizer' has no range yet: calibrate before this", layer.path);
  }
  return std::move(found.layers);
}

Report choose_codes(Module& model, DataLoader& data, const StatisticsOptions& options,
                    const std::string& function, const ChooseWeights& choose, ReasonAgainst against) {
  Report report;
  const auto layers = codable_layers(model, data, function, report, against);
  const auto statistics = input_statistics(model, data, layers, options, function);
  const auto ranks = ranks_or_one(options.ranks);
  const auto size = static_cast<std::size_t>(ranks->size()), own = static_cast<std::size_t>(ranks->rank());
  report.layers.resize(layers.size());
  // Statistics are the same on all ranks, so that a layer's result does not depend on its owner.
  for (std::size_t i = own; i < layers.size(); i += size) {
    const auto& inputs = statistics.at(layers[i].path);
    const WeightGrid grid = weight_grid(layers[i]);
    report.layers[i] = set_weight(layers[i], grid, inputs, choose(layers[i], grid, inputs));
  }
  if (size > 1) exchange(*ranks, layers, report);
  return report;
}

}  // namespace fq::ptq
