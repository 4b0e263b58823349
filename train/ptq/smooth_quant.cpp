#include <algorithm>
#include <cmath>
#include <numeric>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/ptq/detail/algorithm_entry.h"
#include "fakequant/train/ptq/detail/channel_scaling.h"
#include "fakequant/train/ptq/detail/float_run.h"
#include "fakequant/train/ptq/detail/input_statistics.h"

namespace fq::ptq {
namespace {

// s = max|x|^alpha / max|w|^(1 - alpha), and 1 for channels without values or weights.
float factor(float x, float w, double alpha) {
  if (x == 0.0f || w == 0.0f) return 1.0f;
  return static_cast<float>(std::pow(double(x), alpha) / std::pow(double(w), 1 - alpha));
}

/// Returns the largest channel value divided by the mean of all channels.
double spread(const std::vector<float>& largest) {
  const double sum = std::accumulate(largest.begin(), largest.end(), 0.0);
  return sum == 0 ? 1 : double(*std::ranges::max_element(largest)) * double(largest.size()) / sum;
}

}  // namespace

Report smooth_quant(Module& model, DataLoader& data, const SmoothQuantOptions& options) {
  FQ_CHECK(options.alpha >= 0 && options.alpha <= 1, "smooth_quant", "alpha is {}: use 0 to 1",
           options.alpha);
  check_uncalibrated(model, "smooth_quant");
  const TraceGraph graph = float_graph(model, loader_input_shape(data));
  const ScaleGroups found = scale_groups(model, graph);
  const auto statistics =
      input_statistics(model, data, weighted_layers(model, graph).layers,
                       {.samples = options.samples, .ranks = options.ranks, .gram = false}, "smooth_quant");
  Report report{.layers = {}, .skipped = found.skipped};
  for (const auto& group : found.groups) {
    // All readers share one factor per channel: the largest values of any reader count.
    std::vector<std::vector<float>> inputs, weights;
    for (const auto& reader : group.readers) {
      inputs.push_back(statistics.at(reader.path).largest);
      weights.push_back(largest_by_channel(reader));
    }
    const auto x = largest_of_readers(group, inputs), w = largest_of_readers(group, weights);
    std::vector<float> factors(x.size()), smooth(x.size());
    for (std::size_t c = 0; c < x.size(); ++c) {
      factors[c] = factor(x[c], w[c], options.alpha);
      // The range after smoothing is known without a second pass.
      smooth[c] = x[c] / factors[c];
    }
    scale_channels(group, factors);
    for (const auto& reader : group.readers)
      report.layers.push_back({reader.path, spread(x), spread(smooth)});
  }
  return report;
}

AlgorithmEntry smoothquant_entry() {
  return {.options = {{"alpha"}},
          .before = [](Module& model, DataLoader& data, const AlgorithmOptions& given) {
            SmoothQuantOptions options{.samples = given.samples(), .ranks = given.ranks()};
            options.alpha = given.number("alpha", options.alpha);
            return smooth_quant(model, data, options);
          }};
}

}  // namespace fq::ptq
